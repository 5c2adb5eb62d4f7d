// needs: none. Mixtures whose experts lie in parts by class: what they compute, where an order is kept, what files say.
#include "model/compress/split/expert_parts.h"

#include "base/error.h"
#include "graph/pass/pass.h"
#include "graph/transform/split_experts/split_experts.h"
#include "model/arch/checkpoint/write.h"
#include "model/arch/split_weights.h"
#include "tests/model/compress/equivalent_transform/transform_case.h"

namespace lumen::model::compress {
namespace {

// Classes of all mixtures: three that lie through each other.
std::vector<ExpertParts> classes_of(const arch::Model& m) {
  std::vector<ExpertParts> out;
  for (const graph::StackedExperts& s : graph::stacked_experts(graph::with_numbers(function_of(m, "forward")))) {
    ExpertParts& parts = out.emplace_back();
    parts.weights = s.weights;
    for (int64_t e = 0; e < s.experts; ++e) parts.classes.push_back((e * 5 + 2) % 3);
  }
  return out;
}

struct Mixture {
  const char* family;
  bool has_order;  // its router means more than names by numbers
};

class ExpertFamilies : public testing::TestWithParam<Mixture> {};

TEST_P(ExpertFamilies, ComputeTheSame) {
  const arch::Model before = uneven_model(GetParam().family);
  const std::vector<ExpertParts> parts = classes_of(before);
  ASSERT_FALSE(parts.empty());
  const arch::Model split = with_expert_parts(before, parts);
  const std::string first = parts[0].weights[0];
  EXPECT_EQ(split.find(first), nullptr);
  EXPECT_NE(split.find(graph::expert_part(first, 2)), nullptr);
  EXPECT_EQ(split.find(arch::order_parameter(first)) != nullptr, GetParam().has_order);
  const std::vector<double> want = logits_of(before);
  EXPECT_LT(off(logits_of(split), want), 1e-6);
  const TestFolder folder;
  write_gguf(split, folder / "m.gguf");
  write_hf(split, folder / "hf");
  for (const char* name : {"m.gguf", "hf"})
    EXPECT_LT(off(logits_of(read_model(test_library(), folder / name)), want), 1e-6) << name;
}
INSTANTIATE_TEST_SUITE_P(All, ExpertFamilies,
                         testing::Values(Mixture{"mixtral", false}, Mixture{"qwen2_moe", false},
                                         Mixture{"gpt_oss", false}, Mixture{"glm4_moe", false},
                                         Mixture{"deepseek_v3", true}),
                         [](const auto& mixture) { return std::string(mixture.param.family); });

TEST(ExpertPartsOf, OneClassStaysWhole) {
  const arch::Model before = uneven_model("mixtral");
  std::vector<ExpertParts> parts = classes_of(before);
  for (ExpertParts& p : parts) p.classes.assign(p.classes.size(), 1);
  EXPECT_EQ(used_classes(parts[0]), std::vector<size_t>{1});
  const arch::Model same = with_expert_parts(before, parts);
  EXPECT_FALSE(same.metadata.has(arch::kSplitExperts));
  EXPECT_TRUE(changed_weights(same, before).empty());
  EXPECT_EQ(same.weights.size(), before.weights.size());
}

TEST(ExpertPartsOf, AreNotCutTwice) {
  const arch::Model before = uneven_model("mixtral");
  const std::vector<ExpertParts> parts = classes_of(before);
  EXPECT_THROW((void)with_expert_parts(with_expert_parts(before, parts), parts), Error);
}

}  // namespace
}  // namespace lumen::model::compress
