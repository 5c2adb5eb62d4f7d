// needs: none. An output that is the embedding is a module of its own for those who read packed folders, and must be
// among those that stay whole: nothing in the file is called so.
#include <algorithm>

#include "model/arch/checkpoint/packed/pack.h"
#include "tests/model/arch/packed/folder_case.h"

namespace lumen::model::arch {
namespace {

// What the config says of modules that stay floats, wherever the layout has that.
std::vector<std::string> left_of(const nlohmann::json& quantization) {
  std::vector<std::string> out;
  for (const char* key : {"ignore", "modules_to_not_convert", "llm_int8_skip_modules"})
    if (quantization.contains(key))
      for (const auto& name : quantization[key]) out.push_back(name);
  if (quantization.contains("dynamic"))
    for (const auto& [pattern, none] : quantization["dynamic"].items()) out.push_back(pattern);
  return out;
}

FormatRef first_taken(const std::string& output) {
  for (const FormatRef& f : known_formats().all())
    if (f->encodes() && f->block <= 64 && Packing::takes(output, known_formats(), f)) return f;
  return nullptr;
}

class SharedOutput : public testing::TestWithParam<std::string> {};

TEST_P(SharedOutput, StaysWhole) {
  if (Packing::is_stacked(GetParam())) GTEST_SKIP() << "packs experts alone";
  const std::string name = first_taken(GetParam())->name;
  for (const bool tied : {false, true}) {
    const Model m = rounded_to(packable_llama(tied), name);
    const TestFolder folder;
    write_model(m, {folder / "out", GetParam()});
    const nlohmann::json quantization = quantization_of(folder / "out");
    const std::vector<std::string> left = left_of(quantization);
    const bool is_pattern = quantization.contains("dynamic");
    EXPECT_EQ(std::ranges::count(left, is_pattern ? "-:^lm_head$" : "lm_head"), 1)
        << GetParam() << " tied " << tied << ": " << quantization.dump();
    if (quantization.contains("lm_head")) {
      EXPECT_EQ(quantization["lm_head"], false);
    }
    const Model back = read_hf(test_library(), folder / "out");
    EXPECT_EQ(back.integer("tied"), tied ? 1 : 0);
  }
}

INSTANTIATE_TEST_SUITE_P(Packed, SharedOutput, testing::ValuesIn(Packing::outputs()), [](const auto& i) {
  std::string name = i.param;
  std::ranges::replace(name, '-', '_');
  return name;
});

// Mixtures: the router and the shared output, and nothing twice; an output of its own that is packed is not listed.
TEST(SharedOutput, OfMixturesAndOfOutputsThatArePacked) {
  for (const char* family : {"mixtral", "qwen3_moe", "qwen2_moe", "deepseek_v3"}) {
    Model m = rounded_to(read_hf(test_library(), kFamilies / family), "int8_row");
    const TestFolder folder;
    write_model(m, {folder / "out", "compressed-tensors"});
    std::vector<std::string> left = left_of(quantization_of(folder / "out"));
    std::ranges::sort(left);
    EXPECT_EQ(std::ranges::adjacent_find(left), left.end()) << family;
    EXPECT_TRUE(std::ranges::any_of(left, [](const auto& n) { return n.ends_with("gate"); })) << family;
    EXPECT_EQ(std::ranges::count(left, "lm_head"), 1) << family;
  }
  Model m = rounded_to(packable_llama(), "int8_row");
  compress::QuantizeOptions all;
  all.target = "int8_row";
  all.pure = true;
  m.weights["output"] = quantize(engine(), packable_llama(), all, nullptr).weights.at("output");
  const TestFolder folder;
  write_model(m, {folder / "out", "compressed-tensors"});
  EXPECT_TRUE(left_of(quantization_of(folder / "out")).empty());
}

}  // namespace
}  // namespace lumen::model::arch
