// needs: none. Draws by races: how often each token wins beside its probability, whichever group it is in; numbers that
// devices compute.
#include "model/infer/sample/race.h"

#include <gtest/gtest.h>

#include <cmath>
#include <set>
#include <vector>

#include "model/infer/sample/sampler.h"

namespace lumen::model::infer {
namespace {

// Chi-squared of how often bins were hit, in standard deviations from its mean.
double excess(const std::vector<double>& expected, const std::vector<int>& hits) {
  double sum = 0;
  int bins = 0;
  for (size_t i = 0; i < hits.size(); ++i) {
    if (expected[i] < 5) continue;
    sum += (hits[i] - expected[i]) * (hits[i] - expected[i]) / expected[i];
    ++bins;
  }
  return (sum - (bins - 1)) / std::sqrt(2.0 * (bins - 1));
}

SamplerOptions all_of(double temperature, uint32_t seed) {
  SamplerOptions o;
  o.temperature = temperature;
  o.top_k = 0;
  o.top_p = 1;
  o.min_p = 0;
  o.seed = seed;
  return o;
}

TEST(Race, TokensWinAsOftenAsTheirProbability) {
  struct Case {
    size_t vocabulary;
    double spread, temperature;
  };
  for (const Case& c : {Case{3, 1, 1}, Case{300, 1, 0.7}, Case{1000, 0, 1}, Case{6000, 3, 0.5}}) {
    std::vector<float> logits(c.vocabulary);
    for (size_t i = 0; i < logits.size(); ++i) logits[i] = float(c.spread * std::sin(double(i * i) * 0.37));
    Sampler sampler(all_of(c.temperature, 17));
    constexpr int kDraws = 40000;
    std::vector<int> hits(c.vocabulary, 0);
    for (int i = 0; i < kDraws; ++i) ++hits[size_t(sampler.pick(logits))];
    std::vector<double> expected(c.vocabulary);
    double sum = 0;
    for (size_t i = 0; i < logits.size(); ++i) sum += expected[i] = std::exp(double{logits[i]} / c.temperature);
    for (double& e : expected) e *= kDraws / sum;
    EXPECT_LT(std::fabs(excess(expected, hits)), 4) << c.vocabulary;
  }
}

// Consecutive draws and neighbouring seeds are independent of each other.
TEST(Race, DrawsAreIndependent) {
  const std::vector<float> logits(8, 0.0F);
  constexpr int kDraws = 20000;
  std::vector<int> follows(64, 0), beside(64, 0);
  Sampler a(all_of(1, 4)), b(all_of(1, 5));
  text::TokenId last = a.pick(logits);
  (void)b.pick(logits);
  for (int i = 0; i < kDraws; ++i) {
    const text::TokenId now = a.pick(logits);
    ++follows[size_t(last * 8 + now)];
    ++beside[size_t(now * 8 + b.pick(logits))];
    last = now;
  }
  const std::vector<double> expected(64, kDraws / 64.0);
  EXPECT_LT(std::fabs(excess(expected, follows)), 4);
  EXPECT_LT(std::fabs(excess(expected, beside)), 4);
}

TEST(Race, DevicesComputeTheSameNumbers) {
  const Formula f = Race::group_formula();
  verify_formula(f);
  std::set<uint32_t> keys;
  for (uint32_t seed = 0; seed < 40; ++seed) {
    const Race race(seed, seed * 7);
    keys.insert(race.key());
    std::vector<float> least(500);
    race.least_of_groups(least);
    for (int64_t group = 0; group < 500; ++group) {
      const ScalarValue in[2] = {{0, group}, {0, static_cast<int32_t>(race.key())}};
      ScalarValue out[1];
      eval_formula(f, in, out);
      const double want = race.of_group(group);
      ASSERT_NEAR(out[0].real / want, 1, 1e-6) << seed << " " << group;
      ASSERT_GE(want, Race::kLeast);
      ASSERT_GE(want, double{least[size_t(group)]});
      ASSERT_LE(-std::expm1(-want), least[size_t(group)] * (1 + 1e-6));
      ASSERT_GE(race.of_token(text::TokenId(group)), race.least_of_token(text::TokenId(group)));
    }
  }
  EXPECT_EQ(keys.size(), 40U);
}

}  // namespace
}  // namespace lumen::model::infer
