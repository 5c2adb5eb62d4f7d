// needs: none. Rankings against all candidates in order, whatever is barred, changed, equal or asked for.
#include "model/infer/sample/ranking.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>

namespace lumen::model {
namespace {

constexpr float kNothing = -std::numeric_limits<float>::infinity();

struct Drawn {
  std::vector<float> logits;
  std::vector<bool> barred, allowed;
  std::unordered_map<TokenId, double> changed;

  // What there is, in order, by looking at every token.
  std::vector<Candidate> sorted(bool only) const {
    std::vector<Candidate> out;
    for (size_t i = 0; i < logits.size(); ++i) {
      const auto c = changed.find(TokenId(i));
      const double logit = c == changed.end() ? double{logits[i]} : c->second;
      if (i < barred.size() && barred[i]) continue;
      if (only && (i >= allowed.size() || !allowed[i])) continue;
      if (logit > kNothing) out.push_back({TokenId(i), logit});
    }
    std::sort(out.begin(), out.end(), is_better);
    return out;
  }
};

Drawn drawn(std::mt19937& random) {
  Drawn d;
  std::normal_distribution<float> normal(0, 3);
  const size_t n = 1 + random() % 3000;
  const float step = random() % 2 == 0 ? 8 : 0.5F;  // of many equal ones, or hardly any else
  for (size_t i = 0; i < n; ++i)
    d.logits.push_back(random() % 50 == 0 ? kNothing : std::round(normal(random) * step) / step);
  if (random() % 3 == 0) std::sort(d.logits.begin(), d.logits.end());  // each is better than all before
  for (size_t i = 0; i < random() % (n + 1); ++i) d.barred.push_back(random() % 4 == 0);
  for (size_t i = 0; i < random() % (n + 3); ++i) d.allowed.push_back(random() % 4 != 0);
  for (size_t i = 0; i < random() % 20; ++i)
    d.changed[TokenId(random() % (n + 4)) - 2] = random() % 8 == 0 ? double{kNothing} : normal(random) + 1e-9;
  return d;
}

void expect_order(Ranking& ranking, const std::vector<Candidate>& want) {
  ASSERT_EQ(ranking.count(), want.size());
  for (size_t i = 0; i < want.size(); ++i) {
    ASSERT_TRUE(ranking.has(i)) << i;
    ASSERT_EQ(ranking[i].id, want[i].id) << i;
    ASSERT_EQ(ranking[i].logit, want[i].logit) << i;
  }
  ASSERT_FALSE(ranking.has(want.size()));
  ASSERT_EQ(ranking.count(), want.size());
}

TEST(Ranking, IsTheOrderOfAll) {
  std::mt19937 random(5);
  for (int round = 0; round < 300; ++round) {
    const Drawn d = drawn(random);
    const std::vector<Candidate> want = d.sorted(false);
    for (const size_t first : {size_t{0}, size_t{1}, size_t{7}, size_t{64}, d.logits.size(), size_t{100000}}) {
      Ranking ranking(d.logits, d.barred, d.changed, first);
      expect_order(ranking, want);
    }
    Ranking at_once(d.logits, d.barred, d.changed, 3);
    ASSERT_EQ(at_once.all().size(), want.size());
    expect_order(at_once, want);
    // What is allowed, also where something was ranked before.
    Ranking ranking(d.logits, d.barred, d.changed, 3);
    ranking.has(random() % 20);
    ranking.only(d.allowed);
    expect_order(ranking, d.sorted(true));
  }
}

TEST(Ranking, SumsWhatIsLeft) {
  std::mt19937 random(6);
  for (int round = 0; round < 100; ++round) {
    const Drawn d = drawn(random);
    std::vector<Candidate> want = d.sorted(false);
    const auto total = [&] {
      double sum = 0;
      for (const Candidate& c : want) sum += std::exp((c.logit - want[0].logit) / 0.7);
      return sum;
    };
    Ranking ranking(d.logits, d.barred, d.changed, 3);
    EXPECT_NEAR(ranking.total(0.7), total(), 1e-9 * total());
    if (want.empty()) continue;
    const size_t most = 1 + random() % (want.size() + 5);
    want.resize(std::min(most, want.size()));
    ranking.keep(most);
    expect_order(ranking, want);
    EXPECT_DOUBLE_EQ(ranking.total(0.7), total());
    ranking.take({want.front()});
    EXPECT_EQ(ranking.count(), 1U);
    EXPECT_FALSE(ranking.has(1));
    EXPECT_EQ(ranking.total(0.7), 1);
  }
}

TEST(Ranking, NothingIsAllowed) {
  const std::vector<float> logits{1, 2, kNothing};
  Ranking ranking(logits, {true, true}, {}, 4);
  EXPECT_FALSE(ranking.has(0));
  EXPECT_EQ(ranking.count(), 0U);
  EXPECT_EQ(ranking.total(1), 0);
  EXPECT_TRUE(ranking.all().empty());
}

}  // namespace
}  // namespace lumen::model
