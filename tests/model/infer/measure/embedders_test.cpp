// needs: none. Embedding models as folders of sentence-transformers, with their modules, against that library; and the
// same from the files that are written of them. The fixtures: embedders_reference.py.
#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/file/file.h"
#include "base/structured/json.h"
#include "model/arch/checkpoint/read.h"
#include "model/arch/checkpoint/write.h"
#include "model/arch/modules/modules.h"
#include "model/infer/measure/embed.h"
#include "tests/model/families/family_case.h"

namespace lumen::model::infer {
namespace {

const std::filesystem::path kEmbedders = kFixtures / "embedders";

struct Texts {
  explicit Texts(const std::string& name)
      : said(parse_json(read_file(kEmbedders / (name + ".json"), 1 << 20), name)),
        file(kEmbedders / (name + ".safetensors"), test_library()->formats()),
        texts(said.at("texts").get<std::vector<std::string>>()),
        prompts(said.at("prompts").get<std::vector<std::string>>()) {}
  nlohmann::json said;
  file::SafetensorsFile file;
  std::vector<std::string> texts, prompts;
};

// The largest difference of the vectors of all texts, each of length 1.
double off(const arch::Model& model, const std::filesystem::path& path, const Texts& t, const std::string& prompt,
           const std::string& before, int64_t batch) {
  std::vector<std::vector<text::TokenId>> ids;
  text::EncodeOptions encode;
  encode.add_special = true;
  for (const std::string& text : t.texts) ids.push_back(model.tokenizer->encode(before + text, encode));
  const LoadedModel loaded(engine(), model);
  Embedder embedder(loaded, {.batch = batch, .exact = true});
  const auto want = numbers<float>(t.file.get("vectors." + prompt));
  double most = 0;
  size_t at = 0;
  for (auto& vectors : embedder.embed_all(ids, pooling_of(model, path).value())) {
    normalise(vectors.at(0), 2);
    EXPECT_EQ(std::ssize(vectors.at(0)), embedder.size());
    for (const float v : vectors.at(0)) most = std::max(most, std::abs(double{v} - want.at(at++)));
  }
  EXPECT_EQ(at, want.size());
  return std::isfinite(most) ? most : INFINITY;
}

class Embedders : public testing::TestWithParam<std::string> {};

TEST_P(Embedders, AgreeWithTheLibrary) {
  const Texts t(GetParam());
  const std::filesystem::path folder = kEmbedders / GetParam();
  const arch::Model m = arch::read_model(test_library(), folder);
  const arch::Prompts prompts = arch::prompts_of(m.files);
  for (size_t i = 0; i < t.texts.size(); ++i) {
    text::EncodeOptions encode;
    encode.add_special = true;
    EXPECT_EQ(nlohmann::json(m.tokenizer->encode(t.texts[i], encode)), t.said["ids"][i]) << t.texts[i];
  }
  for (const std::string& prompt : t.prompts) {
    const std::string before = prompt.empty() ? "" : prompts.by_name.at(prompt);
    EXPECT_LT(off(m, folder, t, prompt, before, 1024), 1e-4) << prompt;
    EXPECT_LT(off(m, folder, t, prompt, before, 1), 1e-4) << prompt << ", without padding";
  }
}

TEST_P(Embedders, AreWrittenAsBothKindsOfFiles) {
  const Texts t(GetParam());
  const std::filesystem::path folder = kEmbedders / GetParam();
  const arch::Model m = arch::read_model(test_library(), folder);
  const TestFolder out;
  arch::write_hf(m, out / "again");
  const arch::Model again = arch::read_model(test_library(), out / "again");
  EXPECT_LT(off(again, out / "again", t, "", "", 1024), 1e-4);
  arch::write_gguf(m, out / "m.gguf");
  arch::Model g = arch::read_model(test_library(), out / "m.gguf");
  // GGUF files have numbers for three kinds of pooling.
  const auto own = pooling_of(m, folder).value();
  if (own == Pooling::mean || own == Pooling::first || own == Pooling::last) {
    EXPECT_EQ(pooling_of(g, out / "m.gguf"), own);
    EXPECT_LT(off(g, out / "m.gguf", t, "", "", 1024), 1e-4);
    arch::write_hf(g, out / "back");
    const arch::Model back = arch::read_model(test_library(), out / "back");
    EXPECT_LT(off(back, out / "back", t, "", "", 1024), 1e-4);
  } else {
    EXPECT_EQ(pooling_of(g, out / "m.gguf"), std::nullopt);
  }
}

INSTANTIATE_TEST_SUITE_P(All, Embedders, testing::ValuesIn([] {
                           std::vector<std::string> names = names_in(kEmbedders);
                           names.erase(std::unique(names.begin(), names.end()), names.end());
                           return names;
                         }()),
                         [](const auto& i) { return i.param; });

TEST(Embedder, WhatCannotBeComputedIsRefused) {
  const TestFolder folder;
  const auto copy = [&](const std::string& name) {
    std::filesystem::remove_all(folder / "m");
    std::filesystem::copy(kEmbedders / name, folder / "m", std::filesystem::copy_options::recursive);
  };
  const auto message = [&](const std::function<void()>& work) -> std::string {
    try {
      work();
    } catch (const Error& e) {
      return e.what();
    }
    return "";
  };
  copy("gemma");
  std::filesystem::remove(folder / "m" / "2_Dense" / "model.safetensors");
  EXPECT_NE(message([&] { (void)arch::read_model(test_library(), folder / "m"); }).find("lacks config.json or"),
            std::string::npos);
  copy("last");
  write_file_atomic(
      folder / "m" / "modules.json",
      R"([{"path": "", "type": "a.Transformer"}, {"path": "1_Pooling", "type": "a.Pooling"}, {"path": "w", "type": "a.LSTM"}])");
  const arch::Model m = arch::read_model(test_library(), folder / "m");
  EXPECT_NE(message([&] { (void)pooling_of(m, folder / "m"); }).find("a.LSTM"), std::string::npos);
  // Vectors are all that such a model gives.
  copy("gemma");
  const arch::Model g = arch::read_model(test_library(), folder / "m");
  EXPECT_NE(message([&] { (void)g.family->function("forward", g.config); }).find("predicts no tokens"),
            std::string::npos);
}

}  // namespace
}  // namespace lumen::model::infer
