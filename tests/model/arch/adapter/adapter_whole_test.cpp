// needs: none. Models under the numbers that an adapter's whole weights ask for.
#include "model/arch/adapter/adapter_whole.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "tests/model/tiny.h"

namespace lumen::model::arch {
namespace {

TEST(AdapterWhole, BiasesThatTheConfigLeavesOut) {
  const Model m = initialise(test_library()->family("llama"), tiny_config(), 1);
  const std::string q = "model.layers.1.self_attn.q_proj.bias", down = "model.layers.0.mlp.down_proj.bias";
  const auto with_queries = config_with(m, q), with_down = config_with(m, down);
  ASSERT_TRUE(with_queries && with_down);
  // What folders say by one key comes together.
  EXPECT_EQ(with_queries->at("bias"), 1);
  EXPECT_EQ(with_queries->at("output_bias"), 1);
  EXPECT_EQ(with_queries->at("ffn_bias"), 0);
  EXPECT_EQ(with_down->at("ffn_bias"), 1);
  EXPECT_EQ(with_down->at("bias"), 0);
  EXPECT_FALSE(config_with(m, "model.norm.bias"));
  EXPECT_FALSE(config_with(m, "model.layers.9.self_attn.q_proj.bias"));
  const Model changed = with_config(m, *with_queries);
  for (const Parameter& p : changed.parameters) {
    ASSERT_TRUE(changed.weights.contains(p.name)) << p.name;
    if (m.find(p.name)) continue;
    EXPECT_EQ(p.role, "bias");
    for (const float x : changed.weights.at(p.name).f32()) EXPECT_EQ(x, 0);
  }
  EXPECT_EQ(changed.parameters.size(), m.parameters.size() + 8);
  EXPECT_FALSE(config_with(changed, q));  // it has them already
}

TEST(AdapterWhole, AdaptersOfDifferentVocabulariesAreRefused) {
  const Model m = initialise(test_library()->family("llama"), tiny_config(), 1);
  const auto grown = [&](int64_t tokens) {
    Adapter a;
    a.name = fmt::format("grown to {}", tokens);
    a.config[kVocabulary] = static_cast<double>(tokens);
    const std::vector<float> values(static_cast<size_t>(tokens * 12), 0.5F);
    for (const char* name : {"embed", "output"})
      a.whole[name] = f32_weight({graph::Dim(tokens), graph::Dim(12)}, values);
    return a;
  };
  const Adapter one = grown(13), same = grown(13), other = grown(14);
  const Model larger = with_whole_weights(m, std::vector<const Adapter*>{&one, &same});
  EXPECT_EQ(larger.integer("vocab"), 13);
  EXPECT_EQ(larger.find("embed")->shape[0].number(), 13);
  EXPECT_THROW(with_whole_weights(m, std::vector<const Adapter*>{&one, &other}), Error);
  // One that changes the output of the model's own vocabulary.
  Adapter narrow;
  narrow.parts["output"] = {f32_weight({graph::Dim(1), graph::Dim(12)}, std::vector<float>(12)),
                            f32_weight({graph::Dim(11), graph::Dim(1)}, std::vector<float>(11))};
  EXPECT_NO_THROW(with_whole_weights(m, std::vector<const Adapter*>{&narrow}));
  EXPECT_THROW(with_whole_weights(m, std::vector<const Adapter*>{&one, &narrow}), Error);
}

}  // namespace
}  // namespace lumen::model::arch
