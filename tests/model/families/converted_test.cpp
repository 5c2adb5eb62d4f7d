// needs: none. GGUF files that another program's converter made of the families' folders: they must mean the same
// model as the folders do. The fixtures and the script that makes them: converted_reference.py.
#include "base/error.h"
#include "model/arch/checkpoint/read.h"
#include "model/arch/checkpoint/write.h"
#include "model/arch/family/config_file.h"
#include "model/infer/session/session_many.h"
#include "tests/model/families/family_case.h"

namespace lumen::model {
namespace {

const std::filesystem::path kConverted = kFixtures / "converted";

class Converted : public testing::TestWithParam<std::string> {};

std::filesystem::path file_of(const std::string& name) {
  return kConverted / (name + ".gguf");
}

TEST_P(Converted, WholeTexts) {
  const Expected e(GetParam());
  const arch::Model m = read_gguf(test_library(), file_of(GetParam()));
  EXPECT_EQ(m.family->name(), read_hf(test_library(), kFamilies / GetParam()).family->name());
  const infer::LoadedModel loaded(engine(), m);
  const auto logits = forward(m, loaded, e, e.batch, e.length);
  for (int64_t r = 0; r < e.batch; ++r) EXPECT_LT(e.off_text(logits, r, r), kLogitBound) << "text " << r;
}

TEST_P(Converted, PiecesWithACache) {
  const Expected e(GetParam());
  const arch::Model m = read_gguf(test_library(), file_of(GetParam()));
  const infer::LoadedModel loaded(engine(), m);
  infer::Session s(loaded, {.context = e.length, .chunk = 7, .exact = true});
  EXPECT_LT(e.off(s.feed(e.text(1).first(11)), 1, 10), kLogitBound);
  EXPECT_LT(e.off(s.feed(e.text(1).subspan(11, 1)), 1, 11), kLogitBound);
  EXPECT_LT(e.off(s.feed(e.text(1).subspan(12)), 1, e.length - 1), kLogitBound);
}

// The converted file, our own of the folder, and a folder written from the converted file: all the same.
TEST_P(Converted, ThroughOurFiles) {
  const Expected e(GetParam());
  const arch::Model theirs = read_gguf(test_library(), file_of(GetParam()));
  const TestFolder folder;
  write_gguf(read_hf(test_library(), kFamilies / GetParam()), folder / "ours.gguf");
  write_gguf(theirs, folder / "again.gguf");
  std::vector<arch::Model> all = {read_gguf(test_library(), folder / "ours.gguf"),
                                  read_gguf(test_library(), folder / "again.gguf")};
  // GGUF holds some scalings of positions as numbers, from which no config can be told.
  const auto freqs = theirs.weights.find("rope_freqs");
  if (freqs != theirs.weights.end() &&
      std::ranges::any_of(freqs->second.f32(), [](float divisor) { return divisor != 1; })) {
    EXPECT_THROW(write_hf(theirs, folder / "hf"), Error);
  } else {
    write_hf(theirs, folder / "hf");
    all.push_back(read_hf(test_library(), folder / "hf"));
  }
  for (const arch::Model& m : all) {
    EXPECT_EQ(m.family->name(), theirs.family->name());
    const infer::LoadedModel loaded(engine(), m);
    EXPECT_LT(e.off_text(forward(m, loaded, e, 1, e.length), 0, 0), kLogitBound) << m.name;
  }
}

INSTANTIATE_TEST_SUITE_P(All, Converted, testing::ValuesIn(names_in(kConverted)),
                         [](const auto& i) { return i.param; });

// Layers of a block that is left out count in the files of others, not in ours.
TEST(ConvertedFiles, LayersLeftOut) {
  const arch::Model m = read_gguf(test_library(), file_of("exaone_moe"));
  file::GgufMetadata metadata = m.metadata;
  const std::string count = "exaone-moe.block_count", extra = "exaone-moe.nextn_predict_layers";
  metadata.set(count, static_cast<uint32_t>(m.integer("layers") + 1));
  metadata.set(extra, uint32_t{1});
  const graph::Config config = m.family->config("", read_gguf_config(*m.family, metadata));
  EXPECT_EQ(config.at("layers"), m.config.at("layers"));
  write_gguf_config(*m.family, config, metadata);
  EXPECT_EQ(metadata.integer(count), m.integer("layers"));
  EXPECT_FALSE(metadata.has(extra));
  const graph::Config again = m.family->config("", read_gguf_config(*m.family, metadata));
  EXPECT_EQ(again.at("layers"), m.config.at("layers"));
}

// With tokenizer and chat template: the same ids, special tokens and numbers from the folder, from its converted file
// and from ours.
class ConvertedWords : public testing::TestWithParam<const char*> {};

std::vector<float> logits_of(const arch::Model& m, std::span<const text::TokenId> tokens) {
  const infer::LoadedModel loaded(engine(), m);
  infer::Session s(loaded, {.context = 64, .chunk = 32, .exact = true});
  const auto got = s.feed(tokens);
  return {got.begin(), got.end()};
}

TEST_P(ConvertedWords, SameWordsAndNumbers) {
  const std::filesystem::path words = kFixtures / "converted_words";
  const arch::Model h = read_hf(test_library(), words / GetParam());
  const TestFolder folder;
  write_gguf(h, folder / "ours.gguf");
  for (const arch::Model& g : {read_gguf(test_library(), words / (std::string(GetParam()) + ".gguf")),
                               read_gguf(test_library(), folder / "ours.gguf")}) {
    EXPECT_EQ(g.family->name(), h.family->name());
    ASSERT_TRUE(g.tokenizer && h.tokenizer);
    EXPECT_EQ(g.tokenizer->eos(), h.tokenizer->eos());
    EXPECT_EQ(g.tokenizer->chat_template(), h.tokenizer->chat_template());
    for (const bool special : {false, true}) {
      const text::EncodeOptions options{.add_special = special, .parse_special = true};
      for (const char* text : {"안녕하세요, 세계!", "Hello  world 12345\n\tdon't", "<|im_start|>user\n한국어<|im_end|>",
                               "</s>끝 ", "  두 칸  ", "ㅎㅎ 𝔘nicode ①", ""}) {
        const auto ids = h.tokenizer->encode(text, options);
        EXPECT_EQ(g.tokenizer->encode(text, options), ids) << text;
        EXPECT_EQ(g.tokenizer->decode(ids), h.tokenizer->decode(ids)) << text;
      }
    }
    const auto ids = h.tokenizer->encode("안녕 world");
    EXPECT_EQ(logits_of(g, ids), logits_of(h, ids));
  }
}

INSTANTIATE_TEST_SUITE_P(All, ConvertedWords, testing::Values("pairs", "pieces"),
                         [](const auto& i) { return std::string(i.param); });

}  // namespace
}  // namespace lumen::model
