// needs: none. Models that are a part of others: names, what is left aside, and files that say too little.
#include "model/arch/checkpoint/wrapped.h"

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/file/file.h"
#include "base/structured/json.h"
#include "model/arch/checkpoint/read.h"
#include "model/arch/checkpoint/write.h"
#include "tests/model/families/family_case.h"

namespace lumen::model {
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

TEST(Wrapped, WithoutItsObjectRefused) {
  const FamilyRef family = test_library()->family_of_hf("Gemma3ForConditionalGeneration");
  EXPECT_EQ(family->name(), "gemma3");
  for (const char* text : {R"({"architectures": ["x"]})", R"({"text_config": 3})"}) {
    try {
      (void)config_inside(*family, nlohmann::json::parse(text), "config.json");
      ADD_FAILURE() << text;
    } catch (const Error& e) {
      EXPECT_NE(std::string(e.what()).find("text_config"), std::string::npos) << e.what();
    }
  }
}

}  // namespace
}  // namespace lumen::model
