// needs: none. What is drawn: each filter against its definition, and seeds that reproduce.
#include "model/infer/sample/sampler.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <random>

#include "base/error.h"
#include "model/infer/sample/race.h"

namespace lumen::model::infer {
namespace {

SamplerOptions plain() {
  return {.temperature = 1, .top_k = 0, .top_p = 1, .min_p = 0};
}

// What is drawn in many goes, and how often.
std::map<text::TokenId, int> drawn(const SamplerOptions& options, const std::vector<float>& logits, int times = 4000,
                                   const std::vector<text::TokenId>& before = {}) {
  Sampler s(options);
  for (const text::TokenId t : before) s.accept(t);
  std::map<text::TokenId, int> out;
  for (int i = 0; i < times; ++i) ++out[s.pick(logits)];
  return out;
}

std::vector<float> logits_of(const std::vector<double>& p) {
  std::vector<float> out;
  for (const double x : p) out.push_back(static_cast<float>(std::log(x)));
  return out;
}

TEST(Sampler, FrequenciesFollowProbabilities) {
  const auto counts = drawn(plain(), logits_of({0.5, 0.3, 0.2}), 20000);
  EXPECT_NEAR(counts.at(0) / 20000.0, 0.5, 0.02);
  EXPECT_NEAR(counts.at(1) / 20000.0, 0.3, 0.02);
  SamplerOptions o = plain();
  o.temperature = 0.5;  // squares
  EXPECT_NEAR(drawn(o, logits_of({0.5, 0.3, 0.2}), 20000).at(0) / 20000.0, 0.25 / 0.38, 0.02);
}

TEST(Sampler, FiltersKeepWhatTheyShould) {
  const auto logits = logits_of({0.4, 0.3, 0.2, 0.07, 0.03});
  const auto kept = [&](auto set) {
    SamplerOptions o = plain();
    set(o);
    std::vector<text::TokenId> out;
    for (const auto& [id, n] : drawn(o, logits)) out.push_back(id);
    return out;
  };
  using Ids = std::vector<text::TokenId>;
  EXPECT_EQ(kept([](auto& o) { o.top_k = 2; }), (Ids{0, 1}));
  EXPECT_EQ(kept([](auto& o) { o.top_p = 0.65; }), (Ids{0, 1}));
  EXPECT_EQ(kept([](auto& o) { o.min_p = 0.4; }), (Ids{0, 1, 2}));
  EXPECT_EQ(kept([](auto& o) { o.temperature = 0; }), (Ids{0}));
  // Entropy is 1.33 nats; the surprises are 0.92, 1.20, 1.61, 2.66, 3.51: the second and third are the usual ones.
  EXPECT_EQ(kept([](auto& o) { o.typical_p = 0.45; }), (Ids{1, 2}));
  EXPECT_EQ(kept([](auto& o) { o.bias = {{0, -std::numeric_limits<double>::infinity()}, {4, 50}}; }), (Ids{4}));
}

TEST(Sampler, PenaltiesCountWhatWasThere) {
  SamplerOptions o = plain();
  o.temperature = 0;
  const std::vector<float> logits{2, 1.5F, 1};
  EXPECT_EQ(Sampler(o).pick(logits), 0);
  const auto after = [&](auto set, const std::vector<text::TokenId>& before) {
    SamplerOptions p = o;
    set(p);
    Sampler s(p);
    for (const text::TokenId t : before) s.accept(t);
    return s.pick(logits);
  };
  EXPECT_EQ(after([](auto& p) { p.repeat_penalty = 2; }, {0}), 1);
  EXPECT_EQ(after([](auto& p) { p.presence_penalty = 0.6; }, {0}), 1);
  EXPECT_EQ(after([](auto& p) { p.frequency_penalty = 0.4; }, {0}), 0);
  EXPECT_EQ(after([](auto& p) { p.frequency_penalty = 0.4; }, {0, 0}), 1);
  EXPECT_EQ(after(
                [](auto& p) {
                  p.presence_penalty = 0.6;
                  p.repeat_last = 1;
                },
                {0, 2}),
            0);
}

TEST(Sampler, RepeatedPassagesBecomeRarer) {
  SamplerOptions o = plain();
  o.temperature = 0;
  o.dry_multiplier = 1;
  o.dry_allowed_length = 2;
  const std::vector<float> logits{0, 0, 0, 2.5F, 1, 0};
  const auto after = [&](const std::vector<text::TokenId>& before) {
    Sampler s(o);
    for (const text::TokenId t : before) s.accept(t);
    return s.pick(logits);
  };
  EXPECT_EQ(after({0, 1, 2, 3, 5, 1, 2}), 3);     // a passage of two: 1 taken
  EXPECT_EQ(after({0, 1, 2, 3, 5, 0, 1, 2}), 4);  // of three: 1.75 taken
  o.dry_breakers = {1};
  EXPECT_EQ(after({0, 1, 2, 3, 5, 0, 1, 2}), 3);  // it does not reach across 1
}

TEST(Sampler, MirostatKeepsTheSurpriseNearItsGoal) {
  std::vector<float> logits;
  for (int i = 0; i < 2000; ++i) logits.push_back(static_cast<float>(-1.1 * std::log(i + 1)));
  double all = 0;
  for (const float l : logits) all += std::exp(l);
  for (const int kind : {1, 2}) {
    SamplerOptions o = plain();
    o.mirostat = kind;
    o.mirostat_entropy = 3;
    Sampler s(o);
    double surprise = 0;
    for (int i = 0; i < 3000; ++i) surprise -= std::log2(std::exp(logits[static_cast<size_t>(s.pick(logits))]) / all);
    EXPECT_NEAR(surprise / 3000, 3, 1.2) << kind;
  }
}

TEST(Sampler, SeedsReproduceAndConstraintsHold) {
  const auto logits = logits_of({0.4, 0.3, 0.2, 0.1});
  SamplerOptions o = plain();
  o.seed = 7;
  Sampler a(o), b(o);
  for (int i = 0; i < 100; ++i) EXPECT_EQ(a.pick(logits), b.pick(logits));
  TokenSet allowed(4), none(4);
  allowed.add(1);
  allowed.add(3);
  for (int i = 0; i < 100; ++i) EXPECT_EQ(a.pick(logits, &allowed) % 2, 1);
  EXPECT_EQ(a.pick(logits, &none), -1);
}

TEST(Sampler, RefusesValuesOutOfRange) {
  const auto refuse = [](auto set) {
    SamplerOptions o;
    set(o);
    EXPECT_THROW(Sampler{o}, Error);
  };
  refuse([](auto& o) { o.temperature = -1; });
  refuse([](auto& o) { o.typical_p = 0; });
  refuse([](auto& o) { o.mirostat = 3; });
  refuse([](auto& o) { o.dry_base = 0.5; });
  refuse([](auto& o) { o.presence_penalty = std::nan(""); });
}

// Cuts of vocabularies of which only the best are ranked, against a list of all in order.
TEST(Sampler, CutsAreThoseOfTheWholeList) {
  std::mt19937 random(3);
  std::normal_distribution<float> normal(0, 4);
  for (int round = 0; round < 40; ++round) {
    std::vector<float> logits(300 + random() % 500);
    for (float& x : logits) x = std::round(normal(random) * 8) / 8;
    SamplerOptions o = plain();
    o.temperature = round % 2 == 0 ? 1 : 1.7;
    o.top_k = round % 3 == 0 ? 100 : 0;
    o.top_p = round % 5 < 3 ? 0.7 : 1;
    o.min_p = round % 4 == 0 ? 0.02 : 0;
    o.seed = uint32_t(round);
    std::vector<std::pair<float, text::TokenId>> all;  // the best first
    for (size_t i = 0; i < logits.size(); ++i) all.emplace_back(-logits[i], text::TokenId(i));
    std::sort(all.begin(), all.end());
    if (o.top_k > 0) all.resize(size_t(o.top_k));
    const auto p = [&](size_t i, double temperature) { return std::exp((all[0].first - all[i].first) / temperature); };
    double sum = 0, mass = 0;
    for (size_t i = 0; i < all.size(); ++i) sum += p(i, 1);
    size_t n = 0;
    while (n < all.size() && (n == 0 || mass < o.top_p * sum)) mass += p(n++, 1);
    if (o.top_p < 1) all.resize(n);
    for (n = 1; n < all.size() && p(n, 1) >= o.min_p;) ++n;
    all.resize(n);
    std::map<text::TokenId, double> share;
    sum = 0;
    for (size_t i = 0; i < all.size(); ++i) sum += p(i, o.temperature);
    for (size_t i = 0; i < all.size(); ++i) share[all[i].second] = p(i, o.temperature) / sum;
    const int times = 1000;
    for (const auto& [id, count] : drawn(o, logits, times)) {
      ASSERT_TRUE(share.contains(id)) << round;
      const double expected = share[id] * times;
      EXPECT_LE(std::fabs(count - expected), 6 * std::sqrt(expected) + 6) << round << " token " << id;
    }
  }
}

// A filter that is asked about the likeliest alone leaves what one would leave that is asked about all.
TEST(Sampler, FiltersAreTheSameAskedOneByOne) {
  class Counted : public TokenFilter {
   public:
    explicit Counted(const TokenSet& mask) : mask_(mask) {}
    bool allows(text::TokenId id) override { return mask_.has(static_cast<size_t>(id)); }
    const TokenSet& all() override {
      ++whole;
      return mask_;
    }
    int whole = 0;

   private:
    const TokenSet& mask_;
  };
  std::mt19937 random(11);
  std::normal_distribution<float> normal(0, 2);
  int whole = 0, asked = 0;
  for (const double temperature : {0.0, 0.9})
    for (const int64_t top_k : {0, 3, 40})
      for (const double share : {0.9, 0.2, 0.004, 0.0}) {
        SamplerOptions o;
        o.temperature = temperature;
        o.top_k = top_k;
        o.repeat_penalty = 1.3;
        o.bias = {{5, 3.0}, {6, -std::numeric_limits<double>::infinity()}};
        o.seed = 9;
        Sampler a(o), b(o);
        for (int round = 0; round < 20; ++round) {
          std::vector<float> logits(5000);
          for (float& x : logits) x = std::round(normal(random) * 8) / 8;  // many are equal
          TokenSet mask(logits.size());
          for (size_t i = 0; i < mask.size(); ++i)
            if (random() % 1000 < share * 1000) mask.add(i);
          std::vector<float> hidden = logits;
          for (size_t i = 0; i < mask.size(); ++i)
            if (!mask.has(i)) hidden[i] = -std::numeric_limits<float>::infinity();
          Counted filter(mask);
          const text::TokenId got = a.pick(logits, &filter), want = b.pick(hidden);
          ASSERT_EQ(got, want) << temperature << " " << top_k << " " << share;
          whole += filter.whole;
          asked += 1 - filter.whole;
          if (got < 0) continue;
          a.accept(got);
          b.accept(got);
        }
      }
  EXPECT_GT(whole, 0);
  EXPECT_GT(asked, 0);
}

// The winner of the two races among `tokens`, computed as race.h states it.
Candidate winner_of(const std::vector<Candidate>& tokens, double temperature, const Race& race) {
  const auto weight = [&](const Candidate& c) { return std::exp((c.logit - tokens[0].logit) / temperature); };
  std::map<int64_t, double> groups;
  for (const Candidate& c : tokens) groups[c.id / Race::kGroup] += weight(c);
  const auto lead = std::ranges::max_element(
      groups, {}, [&](const auto& g) { return std::log(g.second) - std::log(race.of_group(g.first)); });
  Candidate best{-1, 0};
  double most = -1;
  for (const Candidate& c : tokens) {
    const double ratio = weight(c) / race.of_token(c.id);
    if (c.id / Race::kGroup != lead->first || ratio <= most) continue;
    most = ratio;
    best = c;
  }
  return best;
}

// Large vocabularies, where most draws lie beyond the ranks that are looked at in turn: the tokens are those of a race
// among all that the filters leave.
TEST(Sampler, FarDrawsAreThoseOfTheWholeOrder) {
  constexpr double kAll = std::numeric_limits<double>::infinity();
  std::mt19937 random(5);
  std::normal_distribution<float> normal(0, 1);
  int far = 0;
  for (int round = 0; round < 60; ++round) {
    std::vector<float> logits(5000 + random() % 30000);
    for (float& x : logits) x = round % 4 == 0 ? std::round(normal(random) * 4) / 4 : normal(random);
    SamplerOptions o = plain();
    o.temperature = round % 3 == 0 ? 0.7 : round % 3 == 1 ? 1 : 2;
    o.top_k = round % 5 == 0 ? 4500 : 0;
    o.top_p = round % 2 == 0 ? 0.8 : 1;
    o.min_p = round % 7 < 3 ? 0.02 : 0;
    o.typical_p = round % 6 == 5 ? 0.6 : 1;
    o.bias = {{7, 9}, {8, -kAll}, {9, -1}};
    o.forbidden = {4, 11, 12};
    o.seed = uint32_t(round);
    std::vector<Candidate> all;
    for (size_t i = 0; i < logits.size(); ++i)
      if (i != 8 && i != 4 && i != 11 && i != 12)
        all.push_back({text::TokenId(i), double{logits[i]} + (i == 7 ? 9 : i == 9 ? -1 : 0)});
    std::sort(all.begin(), all.end(), is_better);
    if (o.top_k > 0) all.resize(size_t(o.top_k));
    const auto p = [&](const Candidate& c, double temperature) {
      return std::exp((c.logit - all[0].logit) / temperature);
    };
    const auto total = [&](double temperature) {
      double sum = 0;
      for (const Candidate& c : all) sum += p(c, temperature);
      return sum;
    };
    if (o.typical_p < 1) {
      const double sum = total(1);
      double entropy = 0;
      for (const Candidate& c : all) entropy -= p(c, 1) / sum * std::log(p(c, 1) / sum);
      std::vector<std::pair<double, Candidate>> order;
      for (const Candidate& c : all) order.emplace_back(std::fabs(-std::log(p(c, 1) / sum) - entropy), c);
      std::stable_sort(order.begin(), order.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
      double mass = 0;
      std::vector<Candidate> kept;
      for (size_t i = 0; i < order.size() && mass < o.typical_p; ++i) {
        kept.push_back(order[i].second);
        mass += p(order[i].second, 1) / sum;
      }
      std::sort(kept.begin(), kept.end(), is_better);
      all = kept;
    }
    double mass = 0;
    size_t n = 0;
    for (const double sum = total(1); n < all.size() && (o.top_p == 1 || mass < o.top_p * sum); ++n) {
      if (p(all[n], 1) < o.min_p) break;
      mass += p(all[n], 1);
    }
    all.resize(n);
    Sampler sampler(o);
    int same = 0, times = 40;
    for (int i = 0; i < times; ++i) {
      const Candidate want = winner_of(all, o.temperature, Race(o.seed, uint64_t(i)));
      const text::TokenId got = sampler.pick(logits);
      same += got == want.id ? 1 : 0;
      far += n > 512 && is_better(all[512], want) ? 1 : 0;
      ASSERT_TRUE(std::ranges::any_of(all, [&](const Candidate& c) { return c.id == got; })) << round;
    }
    // A typical set may end elsewhere by one token, as its middle is computed in f32.
    EXPECT_GE(same, o.typical_p < 1 ? times - 1 : times) << round;
  }
  EXPECT_GT(far, 600);
}

// Top-n-sigma and XTC against their definitions, on small and large vocabularies.
TEST(Sampler, TopNSigmaKeepsWhatIsNearTheBest) {
  std::mt19937 random(8);
  for (const size_t vocabulary : {50UL, 30000UL}) {
    std::normal_distribution<float> normal(1, 2);
    std::vector<float> logits(vocabulary);
    for (float& x : logits) x = normal(random);
    double sum = 0, squares = 0;
    for (const float x : logits) sum += x, squares += double{x} * x;
    const double mean = sum / double(vocabulary), sigma = std::sqrt(squares / double(vocabulary) - mean * mean);
    const float best = *std::ranges::max_element(logits);
    SamplerOptions o = plain();
    o.temperature = 50;  // nearly all are equally likely, but for the filter
    o.top_n_sigma = 1.5;
    const auto found = drawn(o, logits, 2000);
    size_t kept = 0;
    for (const float x : logits) kept += x >= best - 1.5 * sigma ? 1 : 0;
    EXPECT_LE(found.size(), kept);
    if (vocabulary == 50) {
      EXPECT_EQ(found.size(), kept);
    }
    for (const auto& [id, times] : found) EXPECT_GE(logits[size_t(id)], best - 1.5 * sigma - 1e-4);
  }
}

TEST(Sampler, XtcLeavesTheLeastLikelyOfTheLikely) {
  for (const size_t vocabulary : {6UL, 20000UL}) {
    std::vector<float> logits(vocabulary, -40);
    const double shares[] = {0.4, 0.3, 0.2, 0.06, 0.04};
    for (size_t i = 0; i < 5; ++i) logits[i] = float(std::log(shares[i]));
    SamplerOptions o = plain();
    o.xtc_threshold = 0.1;
    o.xtc_probability = 1;
    auto found = drawn(o, logits);
    EXPECT_EQ(found.size(), 3U);  // 0 and 1 are left out
    EXPECT_NEAR(found[2], 4000 * 0.2 / 0.3, 150);
    o.xtc_probability = 0.5;
    found = drawn(o, logits);
    EXPECT_EQ(found.size(), 5U);
    EXPECT_NEAR(found[0], 4000 * 0.2, 150);
    o.xtc_threshold = 0.35;  // one likely token alone stays
    o.xtc_probability = 1;
    EXPECT_NEAR(drawn(o, logits)[0], 4000 * 0.4, 150);
    o.xtc_threshold = 0.6;
    EXPECT_NEAR(drawn(o, logits)[0], 4000 * 0.4, 150);
  }
}

// Surprises beyond the ranks that are looked at in turn.
TEST(Sampler, MirostatCutsLargeVocabulariesAtTheSameToken) {
  std::mt19937 random(6);
  std::normal_distribution<float> normal(0, 1);
  std::vector<float> logits(40000);
  for (float& x : logits) x = normal(random);
  double all = 0;
  for (const float l : logits) all += std::exp(l);
  for (const double entropy : {6.0, 13.0}) {
    SamplerOptions o = plain();
    o.mirostat = 2;
    o.mirostat_entropy = entropy;
    o.mirostat_rate = 1e-9;  // the bound stays at twice the entropy
    Sampler sampler(o);
    for (int i = 0; i < 200; ++i) {
      const double surprise = -std::log2(std::exp(logits[size_t(sampler.pick(logits))]) / all);
      EXPECT_LE(surprise, 2 * entropy + 1e-4);
    }
  }
}

}  // namespace
}  // namespace lumen::model::infer
