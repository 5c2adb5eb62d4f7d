// needs: cpu. Scores by several criteria: in nats, smaller for more bits, and formats a weight's shape speaks against.
#include "model/compress/criteria/criteria_scores.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "tests/model/compress/round/moments.h"
#include "tests/model/tiny.h"

namespace lumen::model::compress {
namespace {

struct Scored {
  std::vector<WeightScore> by_loss, by_criteria;
  std::vector<std::string> told;
};

// wq's numbers moved by `offset`.
Scored scored(float offset, const std::vector<const char*>& formats) {
  run::Engine engine(engine_options());
  const arch::FamilyRef f = test_library()->family("llama");
  const std::map<std::string, double> sizes{{"vocab", 24}, {"hidden", 64},  {"layers", 2},  {"heads", 2},
                                            {"ffn", 64},   {"kv_heads", 2}, {"context", 32}};
  arch::Model m = initialise(f, f->config("", {sizes.begin(), sizes.end()}), 5);
  std::vector<std::string> names;
  for (auto& [name, w] : m.weights) {
    if (m.find(name)->is_vector()) continue;
    names.push_back(name);
    if (name != "layers.0.wq") continue;
    std::vector<float> x(w.f32().begin(), w.f32().end());
    for (float& v : x) v += offset;
    w = arch::f32_weight(w.type.shape, x);
  }
  std::vector<text::TokenId> text;
  for (int64_t i = 0; i < 8 * 16; ++i) text.push_back(i * 5 % 23);
  ScoreOptions o;
  o.run = {.length = 16, .batch = 2};
  for (const char* name : formats) o.candidates.push_back(f->library().formats().get(name));
  Scored out;
  out.by_loss = score_weights(engine, m, names, text, o);
  out.by_criteria =
      score_by_criteria(engine, m, out.by_loss, text, {.run = o.run, .windows = 4, .folder = {}}, &out.told);
  return out;
}

TEST(CriteriaScores, AreNatsAndFallWithBits) {
  const Scored s = scored(0, {"int2_g32_asym", "int4_g32_asym", "q8_0"});
  ASSERT_EQ(s.by_criteria.size(), s.by_loss.size());
  EXPECT_TRUE(s.told.empty());
  for (size_t i = 0; i < s.by_loss.size(); ++i) {
    const std::vector<CandidateScore>&before = s.by_loss[i].candidates, &now = s.by_criteria[i].candidates;
    ASSERT_EQ(now.size(), 3U) << s.by_loss[i].name;
    double product = 1;
    for (size_t k = 0; k < 3; ++k) product *= now[k].score / before[k].score;
    EXPECT_NEAR(product, 1, 1e-6) << s.by_loss[i].name;
    EXPECT_GT(now[0].score, now[1].score) << s.by_loss[i].name;
    EXPECT_GT(now[1].score, now[2].score) << s.by_loss[i].name;
    EXPECT_GE(now[2].score, 0);
  }
}

TEST(CriteriaScores, GroupsToOneSideWantAnOffset) {
  const Scored s = scored(1, {"q4_0", "int4_g32_asym"});
  ASSERT_EQ(s.told.size(), 1U);
  EXPECT_NE(s.told[0].find("layers.0.wq: not q4_0"), std::string::npos) << s.told[0];
  for (const WeightScore& w : s.by_criteria)
    EXPECT_EQ(w.candidates.size(), w.name == "layers.0.wq" ? 1U : 2U) << w.name;
  // A weight keeps its candidates where its shape speaks against all of them.
  const Scored all = scored(1, {"q4_0", "q8_0"});
  EXPECT_TRUE(all.told.empty());
}

}  // namespace
}  // namespace lumen::model::compress
