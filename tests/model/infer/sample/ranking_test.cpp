// needs: none. Weights against exp in f64; rankings against all candidates in order, with any that are barred, changed
// or equal.
#include "model/infer/sample/ranking.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "model/infer/sample/weights.h"

namespace lumen::model {
namespace {

constexpr float kNothing = -std::numeric_limits<float>::infinity();

struct Drawn {
  std::vector<float> logits;
  TokenSet barred, allowed;
  std::unordered_map<TokenId, double> changed;

  // What there is, in order, by looking at every token.
  std::vector<Candidate> sorted(bool only) const {
    std::vector<Candidate> out;
    for (size_t i = 0; i < logits.size(); ++i) {
      const auto c = changed.find(TokenId(i));
      const double logit = c == changed.end() ? double{logits[i]} : c->second;
      if (barred.has(i) || (only && !allowed.has(i))) continue;
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
  for (size_t i = 0; i < random() % (n + 1); ++i)
    if (random() % 4 == 0) d.barred.add(i);
  for (size_t i = 0; i < random() % (n + 3); ++i)
    if (random() % 4 != 0) d.allowed.add(i);
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
  TokenSet barred;
  barred.add(0);
  barred.add(1);
  Ranking ranking(logits, barred, {}, 4);
  EXPECT_FALSE(ranking.has(0));
  EXPECT_EQ(ranking.count(), 0U);
  EXPECT_EQ(ranking.total(1), 0);
  EXPECT_TRUE(ranking.all().empty());
}

// Of a large vocabulary sums of weights are found without an order.
TEST(Ranking, WhereASumIsReached) {
  std::mt19937 random(8);
  std::normal_distribution<float> normal(0, 2);
  for (int round = 0; round < 60; ++round) {
    Drawn d;
    const size_t n = 4000 + random() % 9000;
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
    d.changed[TokenId(n - 1)] = -1;
    for (int i = 0; i < 20; ++i)
      d.changed[TokenId(random() % n)] = random() % 8 == 0 ? double{kNothing} : normal(random) + 1e-4;
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
      double all = 0;
      for (const Candidate& c : order) all += std::exp((c.logit - order[0].logit) / temperature);
      ASSERT_NEAR(ranking.total(temperature), all, 1e-5 * all);
      for (const double share : {0.0, 0.01, 0.3, 0.5, 0.9, 0.999, 1.0, 1.1}) {
        const Candidate got = ranking.reaching(share * all, temperature);
        double sum = 0;  // of those before it, and with it
        size_t at = 0;
        while (at < order.size() && order[at].id != got.id)
          sum += std::exp((order[at++].logit - order[0].logit) / temperature);
        ASSERT_LT(at, order.size()) << "a token that is not there";
        const double with = sum + std::exp((got.logit - order[0].logit) / temperature);
        EXPECT_LE(sum, share * all + 1e-5 * all) << round << " " << share;
        if (share <= 1) {
          EXPECT_GE(with, share * all - 1e-5 * all) << round << " " << share;
        }
      }
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

TEST(Weights, AreThoseOfExp) {
  std::mt19937 random(3);
  std::uniform_real_distribution<float> uniform(-90, 0);
  for (const size_t n : {size_t{1}, size_t{7}, size_t{63}, size_t{64}, size_t{65}, size_t{5000}}) {
    for (const float scale : {0.01F, 1.0F, 30.0F, 1e30F}) {
      std::vector<float> logits(n), weights(n);
      for (float& x : logits) x = 20 + uniform(random);
      logits[n / 2] = 20;
      if (n > 1) logits[0] = kNothing;
      TokenSet hidden;
      for (size_t i = 1; i < n; i += 5)
        if (i != n / 2) hidden.add(i);
      const Weighing how{20, scale, -50};
      std::vector<float> sums((n + 63) / 64);
      const double sum = weights_of(logits, how, hidden, weights, sums);
      double want = 0, of_words = 0;
      for (const float part : sums) of_words += part;
      EXPECT_EQ(of_words, sum);
      for (size_t i = 0; i < n; ++i) {
        const double x = (double{logits[i]} - how.best) * how.scale, w = std::exp(x);
        if (hidden.has(i) || logits[i] < how.least || x < -87.01) {
          EXPECT_EQ(weights[i], 0) << logits[i];
        } else if (x > -86.99) {
          EXPECT_NEAR(weights[i] / w, 1, 1e-5) << x;
        }
        want += weights[i];
      }
      EXPECT_EQ(weights[n / 2], 1);
      EXPECT_NEAR(sum, want, 1e-6 * want);
    }
  }
}

// What is hidden may be better than the best that is left, by any amount.
TEST(Weights, HiddenOnesDoNotSpoilTheSum) {
  std::vector<float> logits(128, 1e30F), weights(128);
  TokenSet hidden(128);
  for (size_t i = 0; i < 127; ++i) hidden.add(i);
  logits[127] = -3;
  std::vector<float> sums(2);
  EXPECT_EQ(weights_of(logits, {-3, 1, -100}, hidden, weights, sums), 1);
  EXPECT_EQ(sums, (std::vector<float>{0, 1}));
  EXPECT_EQ(weights[0], 0);
}

}  // namespace
}  // namespace lumen::model
