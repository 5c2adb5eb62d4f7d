// needs: none. Rankings against all candidates in order, with any that are barred, changed or equal.
#include "model/infer/sample/ranking.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <vector>

namespace lumen::model::infer {
namespace {

constexpr float kNothing = -std::numeric_limits<float>::infinity();

struct Drawn {
  std::vector<float> logits;
  TokenSet barred, allowed;
  std::unordered_map<text::TokenId, double> changed;

  // What there is, in order, by looking at every token.
  std::vector<Candidate> sorted(bool only) const {
    std::vector<Candidate> out;
    for (size_t i = 0; i < logits.size(); ++i) {
      const auto c = changed.find(text::TokenId(i));
      const double logit = c == changed.end() ? double{logits[i]} : c->second;
      if (barred.has(i) || (only && !allowed.has(i))) continue;
      if (logit > kNothing) out.push_back({text::TokenId(i), logit});
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
  for (size_t i = 0; i < random() % (n + 1); ++i)
    if (random() % 4 == 0) d.barred.add(i);
  for (size_t i = 0; i < random() % (n + 3); ++i)
    if (random() % 4 != 0) d.allowed.add(i);
  for (size_t i = 0; i < random() % 20; ++i)
    d.changed[text::TokenId(random() % (n + 4)) - 2] = random() % 8 == 0 ? double{kNothing} : normal(random) + 1e-9;
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
  TokenSet barred;
  barred.add(0);
  barred.add(1);
  Ranking ranking(logits, barred, {}, 4);
  EXPECT_FALSE(ranking.has(0));
  EXPECT_EQ(ranking.count(), 0U);
  EXPECT_EQ(ranking.total(1), 0);
  EXPECT_TRUE(ranking.all().empty());
}

// Of a large vocabulary sums of weights are bounded without an order.
TEST(Ranking, SumsOfManyAreBounded) {
  std::mt19937 random(8);
  std::normal_distribution<float> normal(0, 2);
  for (int round = 0; round < 60; ++round) {
    Drawn d;
    const size_t n = 4100 + random() % 9000;
    const int kind = round % 4;  // all are equal, many are, none are, some weigh nothing
    for (size_t i = 0; i < n; ++i) {
      const float x = normal(random);
      d.logits.push_back(kind == 0 ? 1 : kind == 1 ? std::round(x) : kind == 2 ? x : 60 * x);
      if (random() % 50 == 0) d.logits.back() = kNothing;
    }
    for (size_t i = 0; i < n / 3; ++i)
      if (random() % 4 == 0) d.barred.add(i);
    // The best of all may be barred or changed for the worse, by any amount.
    d.barred.add(5);
    d.logits[5] = 1e6F;
    d.logits[n - 1] = 300;
    d.changed[text::TokenId(n - 1)] = -1;
    for (int i = 0; i < 20; ++i)
      d.changed[text::TokenId(random() % n)] = random() % 8 == 0 ? double{kNothing} : normal(random) + 1e-4;
    std::vector<Candidate> order = d.sorted(false);
    const double temperature = round % 3 == 0 ? 0.5 : 1.5;
    Ranking ranking(d.logits, d.barred, d.changed, 64);
    for (const bool cut : {false, true}) {
      if (cut) {
        const Candidate last = order[order.size() / 2];
        order.erase(std::ranges::find_if(order, [&](const Candidate& c) { return is_better(last, c); }), order.end());
        ranking.keep_down_to(last);
        ASSERT_EQ(ranking.count(), order.size());
      }
      double all = 0, sum = 0, squares = 0;
      for (const Candidate& c : order) all += std::exp((c.logit - order[0].logit) / temperature);
      for (const Candidate& c : order) sum += c.logit - order[0].logit;
      for (const Candidate& c : order) squares += std::pow(c.logit - order[0].logit - sum / double(order.size()), 2);
      ASSERT_NEAR(ranking.total(temperature), all, 1e-12 * all);
      const auto [low, high] = ranking.total_within(temperature);
      ASSERT_LE(low, all);
      ASSERT_GE(high, all);
      ASSERT_NEAR(low, high, 1e-4 * all);
      const double deviation = std::sqrt(squares / double(order.size()));
      ASSERT_NEAR(ranking.standard_deviation(), deviation, 1e-6 * (1 + deviation));
    }
    // Ranks go on where they were, and end where tokens were cut off.
    expect_order(ranking, order);
  }
}

TEST(Ranking, KeepsManyWithoutAnOrder) {
  std::mt19937 random(9);
  std::normal_distribution<float> normal(0, 2);
  for (const float step : {1.0F, 1000.0F}) {
    Drawn d;
    for (int i = 0; i < 20000; ++i) d.logits.push_back(std::round(normal(random) * step) / step);
    std::vector<Candidate> order = d.sorted(false);
    for (const size_t most : {size_t{5000}, size_t{19999}, size_t{20000}, size_t{30000}}) {
      Ranking ranking(d.logits, d.barred, d.changed, 64);
      ranking.keep(most);
      order = d.sorted(false);
      order.resize(std::min(most, order.size()));
      expect_order(ranking, order);
    }
  }
}

TEST(TokenSet, HasWhatWasAdded) {
  TokenSet a(70), b;
  for (const size_t id : {0, 63, 64, 69}) a.add(id);
  EXPECT_TRUE(a.has(63) && a.has(64) && !a.has(1) && !a.has(70) && !a.has(1000));
  b.add(130);
  EXPECT_EQ(b.size(), 131U);
  b.resize(100);
  EXPECT_FALSE(b.has(130));
  b.resize(131);
  EXPECT_FALSE(b.has(130));
  TokenSet c(70);
  c.add_all_outside(a);
  for (size_t id = 0; id < 70; ++id) EXPECT_NE(c.has(id), a.has(id)) << id;
  EXPECT_EQ(c.word(1) >> 6, 0U);
}

}  // namespace
}  // namespace lumen::model::infer
