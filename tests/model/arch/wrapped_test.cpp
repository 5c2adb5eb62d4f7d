// needs: none. Models that are a part of others: names, what is left aside, and files that say too little.
#include "model/arch/checkpoint/wrapped.h"

#include <fstream>
#include <functional>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/file/file.h"
#include "base/structured/json.h"
#include "model/arch/checkpoint/read.h"
#include "model/arch/checkpoint/write.h"
#include "model/arch/family/config_file.h"
#include "tests/model/families/family_case.h"

namespace lumen::model::arch {
namespace {

TEST(Wrapped, PatternsMatchAnyCharacters) {
  EXPECT_TRUE(fits_pattern("vision_tower.*", "vision_tower.a.b"));
  EXPECT_TRUE(fits_pattern("*.inv_freq", "model.rotary.inv_freq"));
  EXPECT_FALSE(fits_pattern("vision_tower.*", "model.vision_tower.a"));
  EXPECT_TRUE(fits_pattern("a*b*c", "aXbYbZc"));
  EXPECT_FALSE(fits_pattern("a*b", "aXbY"));
}

TEST(Wrapped, ThePartStandsAloneAfterwards) {
  testing::internal::CaptureStderr();
  const Model m = read_hf(test_library(), kFamilies / "gemma3_pictures");
  const std::string said = testing::internal::GetCapturedStderr();
  EXPECT_NE(said.find("text part"), std::string::npos) << said;
  EXPECT_NE(said.find("34 tensors"), std::string::npos) << said;
  EXPECT_EQ(std::count(said.begin(), said.end(), '\n'), 1) << said;
  const TestFolder folder;
  write_hf(m, folder.path());
  const auto config = parse_json(read_file(folder / "config.json"), "config.json");
  EXPECT_EQ(config.at("architectures"), nlohmann::json({"Gemma3ForCausalLM"}));
  EXPECT_EQ(config.at("model_type"), "gemma3_text");
  EXPECT_FALSE(config.contains("vision_config"));
  testing::internal::CaptureStderr();
  const Model back = read_hf(test_library(), folder.path());
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "");
  EXPECT_EQ(back.config, m.config);
  for (const auto& [name, w] : m.weights) EXPECT_EQ(back.weights.at(name).bytes, w.bytes) << name;
}

std::string refusal_of(const std::function<void()>& work) {
  try {
    work();
  } catch (const Error& e) {
    return e.what();
  }
  return "nothing was refused";
}

TEST(Wrapped, WithoutItsObjectRefused) {
  const FamilyRef family = test_library()->family_inside("Gemma3ForConditionalGeneration", "", false);
  EXPECT_EQ(family->name(), "gemma3");
  for (const char* text : {R"({"architectures": ["x"]})", R"({"text_config": 3})"}) {
    const std::string said =
        refusal_of([&] { (void)config_inside(*family, nlohmann::json::parse(text), "text_config", "config.json"); });
    EXPECT_NE(said.find("text_config"), std::string::npos) << said;
  }
}

// The type of the text part decides, whichever family names the architecture; older files hold the part's keys
// themselves.
TEST(Wrapped, TheTypeOfThePartDecides) {
  const auto& library = *test_library();
  EXPECT_EQ(library.text_member("LlavaOnevisionForConditionalGeneration"), "text_config");
  EXPECT_EQ(library.text_member("LlamaForCausalLM"), "");
  EXPECT_EQ(library.family_inside("LlavaOnevisionForConditionalGeneration", "qwen2")->name(), "qwen2");
  EXPECT_EQ(library.family_inside("LlavaOnevisionForConditionalGeneration", "qwen3")->name(), "qwen3");
  EXPECT_EQ(library.family_inside("Mistral3ForConditionalGeneration", "")->name(), "mistral");
  EXPECT_NE(
      refusal_of([&] { (void)library.family_inside("Mistral3ForConditionalGeneration", "mamba"); }).find("'mamba'"),
      std::string::npos);
  const FamilyRef flat = library.family_inside("Qwen2VLForConditionalGeneration", "qwen2_vl", false);
  const auto config = config_inside(*flat, nlohmann::json::parse(R"({"model_type": "qwen2_vl", "hidden_size": 32})"),
                                    "text_config", "config.json");
  EXPECT_EQ(config.at("hidden_size"), 32);
  EXPECT_EQ(config.at("model_type"), "qwen2");
}

// Two names of one file may disagree: fine-tunes of EXAONE that transformers 5 saved name Llama's class.
TEST(Wrapped, TheTypeDecidesBeforeTheArchitecture) {
  const auto& library = *test_library();
  EXPECT_EQ(library.family_of_hf("LlamaForCausalLM", "exaone")->name(), "exaone");
  EXPECT_EQ(library.family_of_hf("LlamaForCausalLM", "llama")->name(), "llama");
  EXPECT_EQ(library.family_of_hf("LlamaForCausalLM", "a_type_of_nobody")->name(), "llama");
  EXPECT_EQ(library.family_of_hf("", "qwen3")->name(), "qwen3");
  EXPECT_EQ(library.family_of_hf("Qwen3Model", "")->name(), "qwen3");
  EXPECT_EQ(library.family_of_hf("Gemma3TextModel", "gemma3_text")->name(), "gemma3");
  // A member of config.json decides, too.
  const auto family = [&](const std::string& architecture, bool both) {
    return family_of_config(library, {{"architectures", {architecture}},
                                      {"model_type", architecture == "LlamaModel" ? "llama" : "gemma3_text"},
                                      {"use_bidirectional_attention", both}})
        ->name();
  };
  EXPECT_EQ(family("Gemma3TextModel", true), "gemma_embedding");
  EXPECT_EQ(family("Gemma3TextModel", false), "gemma3");
  EXPECT_EQ(family("Gemma3ForCausalLM", true), "gemma3");
  EXPECT_EQ(family("LlamaModel", true), "llama");
  // Heads of other tasks are not read as if they predicted tokens.
  EXPECT_NE(refusal_of([&] {
              (void)library.family_of_hf("Qwen2ForSequenceClassification", "qwen2");
            }).find("no model family"),
            std::string::npos);
}

// A model saved without its head has tensors without the head's prefix, and makes vectors; without an output matrix it
// predicts no tokens, rather than some by the embedding.
TEST(Wrapped, WithoutAHead) {
  const TestFolder folder;
  for (const char* name : {"config.json", "model.safetensors"})
    std::filesystem::copy_file(kFamilies / "qwen3_bare" / name, folder / name);
  const Model tied = read_hf(test_library(), folder.path());
  EXPECT_EQ(tied.config.at("headless"), 0);
  auto config = parse_json(read_file(folder / "config.json"), "config.json");
  config["tie_word_embeddings"] = false;
  config["architectures"] = {"Qwen3ForCausalLM"};  // as embedders are published
  std::ofstream(folder / "config.json") << config.dump();
  const Model bare = read_hf(test_library(), folder.path());
  EXPECT_EQ(bare.config.at("headless"), 1);
  EXPECT_EQ(bare.config.at("tied"), 0);
  EXPECT_NO_THROW((void)bare.family->function("hidden", bare.config));
  const std::string said = refusal_of([&] { (void)bare.family->function("step", bare.config); });
  EXPECT_NE(said.find("lm_head"), std::string::npos) << said;
  const TestFolder again;
  write_hf(bare, again.path());
  EXPECT_EQ(read_hf(test_library(), again.path()).config, bare.config);
}

}  // namespace
}  // namespace lumen::model::arch
