// needs: none. What filters keep and what is drawn, beside the definitions written down plainly: all tokens in order,
// sums in long double. Thousands of rows: flat, peaked, with ties, without most tokens, barred and changed ones.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "model/infer/sample/sampler.h"

namespace lumen::model::infer {
namespace {

constexpr float kNothing = -std::numeric_limits<float>::infinity();
using Tokens = std::vector<Candidate>;

struct Row {
  std::vector<float> logits;
  TokenSet barred;
  std::unordered_map<text::TokenId, double> changed;

  Tokens in_order() const {
    Tokens out;
    for (size_t i = 0; i < logits.size(); ++i) {
      const auto c = changed.find(text::TokenId(i));
      const double logit = c == changed.end() ? double{logits[i]} : c->second;
      if (!barred.has(i) && logit > kNothing) out.push_back({text::TokenId(i), logit});
    }
    std::sort(out.begin(), out.end(), is_better);
    return out;
  }
};

Row row_of(std::mt19937& random, int kind, size_t most) {
  Row row;
  const size_t n = 1 + random() % most;
  const float spreads[] = {2.5F, 0.02F, 10, 1, 4, 1, 0, 2.5F};
  const float steps[] = {0, 0, 0, 2, 8, 0.25F, 1, 0};  // logits are multiples of 1 / step; 0: of nothing
  std::normal_distribution<float> normal(0, spreads[kind]);
  for (size_t i = 0; i < n; ++i) {
    const float x = normal(random);
    row.logits.push_back(steps[kind] == 0 ? x : std::round(x * steps[kind]) / steps[kind]);
  }
  if (random() % 4 == 0) std::sort(row.logits.begin(), row.logits.end());
  if (random() % 4 == 0) std::sort(row.logits.rbegin(), row.logits.rend());
  if (kind == 7) row.logits[random() % n] += 12;  // one that is nearly certain
  const unsigned gone = random() % 3 == 0 ? 2 + random() % 40 : 0;
  for (size_t i = 0; gone > 0 && i < n; ++i)
    if (random() % gone != 0) row.logits[i] = kNothing;
  if (random() % 2 == 0) {
    for (size_t i = 0; i < n; ++i)
      if (random() % 10 == 0) row.barred.add(i);
    row.barred.add(n / 2);
    row.logits[n / 2] = 1e30F;  // better than all, and never there
  }
  if (random() % 2 == 0)
    for (int i = 0; i < 20; ++i)
      row.changed[text::TokenId(random() % n)] = random() % 8 == 0 ? double{kNothing} : normal(random) + 1e-9;
  return row;
}

long double weight(const Candidate& c, const Candidate& best) {
  return std::exp(c.logit - best.logit);
}

bool reaches(long double mass, double share, long double all) {
  return mass >= share * all * (1 - 1e-12L);
}

// The shortest beginning with that share of the weight.
size_t shortest(const Tokens& order, const Candidate& best, double share) {
  long double all = 0, mass = 0;
  for (const Candidate& c : order) all += weight(c, best);
  size_t n = 0;
  while (n < order.size() && (n == 0 || !reaches(mass, share, all))) mass += weight(order[n++], best);
  return n;
}

void keep_share(Tokens& tokens, double share) {
  if (!tokens.empty()) tokens.resize(shortest(tokens, tokens[0], share));
}

void keep_typical(Tokens& tokens, double share) {
  if (tokens.empty()) return;
  const Candidate best = tokens[0];
  long double all = 0, mean = 0;
  for (const Candidate& c : tokens) {
    all += weight(c, best);
    mean += weight(c, best) * (c.logit - best.logit);
  }
  const auto middle = double(best.logit + mean / all);
  std::stable_sort(tokens.begin(), tokens.end(), [&](const Candidate& a, const Candidate& b) {
    return std::fabs(a.logit - middle) < std::fabs(b.logit - middle);
  });
  tokens.resize(shortest(tokens, best, share));
  std::sort(tokens.begin(), tokens.end(), is_better);
}

void keep_weights(Tokens& tokens, double least) {
  std::erase_if(tokens, [best = tokens.empty() ? Candidate{} : tokens[0], least](const Candidate& c) {
    return std::exp(c.logit - best.logit) < least;
  });
}

// The winner of the race as race.h defines it.
text::TokenId drawn(Tokens tokens, const Race& race, double temperature) {
  if (tokens.empty()) return -1;
  const double best = tokens[0].logit;
  std::sort(tokens.begin(), tokens.end(), [](const auto& a, const auto& b) { return a.id < b.id; });
  double most = -1;
  text::TokenId out = -1;
  for (size_t first = 0, end = 0; first < tokens.size(); first = end) {
    const int64_t group = tokens[first].id / Race::kGroup;
    double sum = 0, own = -1;
    text::TokenId winner = -1;
    for (end = first; end < tokens.size() && tokens[end].id / Race::kGroup == group; ++end) {
      const double w = std::exp((tokens[end].logit - best) / temperature);
      sum += w;
      if (const double ratio = w / race.of_token(tokens[end].id); ratio > own) {
        own = ratio;
        winner = tokens[end].id;
      }
    }
    if (const double ratio = sum / race.of_group(group); ratio > most) {
      most = ratio;
      out = winner;
    }
  }
  return out;
}

std::vector<text::TokenId> ids_of(const Tokens& tokens) {
  std::vector<text::TokenId> out;
  for (const Candidate& c : tokens) out.push_back(c.id);
  std::sort(out.begin(), out.end());
  return out;
}

struct Filters {
  int64_t top_k = 0;
  double typical_p = 1, top_p = 1, min_p = 0;
};

// Of the plain definitions, in the order of a sampler's filters; top-p and min-p are both of what typical_p left.
Tokens kept(const Row& row, const Filters& f) {
  Tokens out = row.in_order();
  if (f.top_k > 0 && std::ssize(out) > f.top_k) out.resize(size_t(f.top_k));
  if (f.typical_p < 1) keep_typical(out, f.typical_p);
  Tokens by_weight = out;
  if (f.min_p > 0) keep_weights(by_weight, f.min_p);
  if (f.top_p < 1) keep_share(out, f.top_p);
  return by_weight.size() < out.size() ? by_weight : out;
}

Filters filters_of(std::mt19937& random) {
  const auto one_of = [&](std::initializer_list<double> values) { return values.begin()[random() % values.size()]; };
  Filters f;
  if (random() % 3 == 0) f.top_k = int64_t(one_of({1, 2, 40, 300, 4097, 6000}));
  if (random() % 4 == 0) f.typical_p = one_of({0.01, 0.2, 0.9, 0.95, 0.9999999});
  if (random() % 4 != 0) f.top_p = one_of({1e-9, 0.1, 0.5, 0.9, 0.95, 0.99, 0.999999});
  if (random() % 3 == 0) f.min_p = one_of({1e-8, 0.001, 0.05, 0.3, 0.99});
  return f;
}

TEST(Kept, IsWhatTheDefinitionsSay) {
  std::mt19937 random(11);
  for (int round = 0; round < 2400; ++round) {
    const Row row = row_of(random, round % 8, round % 3 == 0 ? 600 : 9000);
    const Tokens order = row.in_order();
    SCOPED_TRACE(fmt::format("round {}, {} tokens, {} of them there", round, row.logits.size(), order.size()));
    const double share = std::initializer_list<double>{0.05, 0.5, 0.9, 0.95, 0.99, 0.999999}.begin()[random() % 6];
    Tokens want = order;
    {
      Ranking ranking(row.logits, row.barred, row.changed, 64);
      ranking.keep_share(share);
      keep_share(want, share);
      ASSERT_EQ(ids_of(ranking.left()), ids_of(want)) << share;
      // Ranks go on where they were, and end where tokens were cut off.
      for (size_t i = 0; i < want.size(); ++i) ASSERT_TRUE(ranking.has(i) && ranking[i].id == want[i].id) << i;
      ASSERT_FALSE(ranking.has(want.size()));
    }
    {
      Ranking ranking(row.logits, row.barred, row.changed, 64);
      ranking.keep_typical(share);
      want = order;
      keep_typical(want, share);
      ASSERT_EQ(ids_of(ranking.left()), ids_of(want)) << share;
      ASSERT_EQ(ranking.count(), want.size());
    }
    {
      const double least = std::initializer_list<double>{1e-8, 0.001, 0.05, 0.5, 1}.begin()[random() % 5];
      Ranking ranking(row.logits, row.barred, row.changed, 64);
      want = order;
      keep_weights(want, least);
      long double all = 0, mass = 0;
      for (const Candidate& c : order) all += weight(c, order[0]);
      for (const Candidate& c : want) mass += weight(c, order[0]);
      if (!order.empty()) {
        ASSERT_EQ(ranking.is_reached_with(least, share), reaches(mass, share, all));
      }
      ranking.keep_weights(least);
      ASSERT_EQ(ids_of(ranking.left()), ids_of(want)) << least;
    }
    {
      const size_t most = std::initializer_list<size_t>{1, 40, 700, 4097, 6000}.begin()[random() % 5];
      Ranking ranking(row.logits, row.barred, row.changed, 64);
      ranking.keep(most);
      want = order;
      want.resize(std::min(want.size(), most));
      ASSERT_EQ(ids_of(ranking.left()), ids_of(want)) << most;
    }
  }
}

// The same token as by the plain definitions, for every seed; most draws are made without knowing exactly what is kept.
TEST(Kept, DrawsAreThoseOfThePlainRace) {
  std::mt19937 random(12);
  for (int round = 0; round < 1600; ++round) {
    const Row row = row_of(random, round % 8, round % 3 == 0 ? 600 : 9000);
    const Filters f = filters_of(random);
    const double temperature = std::initializer_list<double>{1, 0.7, 0.01, 30}.begin()[random() % 4];
    const Tokens want = kept(row, f);
    SamplerOptions o{.temperature = temperature,
                     .top_k = f.top_k,
                     .top_p = f.top_p,
                     .min_p = f.min_p,
                     .typical_p = f.typical_p,
                     .seed = uint32_t(round)};
    for (const auto& [id, logit] : row.changed) o.bias.emplace_back(id, logit - double{row.logits[id]});
    for (size_t i = 0; i < row.logits.size(); ++i)
      if (row.barred.has(i)) o.forbidden.push_back(text::TokenId(i));
    if (std::ranges::any_of(o.bias, [&](const auto& b) { return !std::isfinite(row.logits[b.first]); })) o.bias.clear();
    Row same = row;  // with the logits that a bias makes
    same.changed.clear();
    for (const auto& [id, by] : o.bias) same.changed[id] = double{row.logits[id]} + by;
    const Tokens left = kept(same, f);
    Sampler sampler(o);
    for (uint64_t number = 0; number < 12; ++number)
      ASSERT_EQ(sampler.pick(row.logits), drawn(left, Race(o.seed, left.empty() ? 0 : number), temperature))
          << "round " << round << ", draw " << number << ", " << row.logits.size() << " tokens, " << left.size()
          << " of them kept by top_k " << f.top_k << " typical_p " << f.typical_p << " top_p " << f.top_p << " min_p "
          << f.min_p << " temperature " << temperature;
  }
}

}  // namespace
}  // namespace lumen::model::infer
