// needs: none. Passes over a whole vocabulary beside plain loops in f64.
#include "model/infer/sample/weights.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <vector>

#include "model/infer/sample/race.h"

namespace lumen::model::infer {
namespace {

struct Row {
  std::vector<float> logits, peaks;
  TokenSet hidden;
};

Row row_of(std::mt19937& random, size_t n) {
  Row row;
  std::uniform_real_distribution<float> uniform(-45, 0);
  for (size_t i = 0; i < n; ++i) row.logits.push_back(random() % 20 == 0 ? -kMostLogit : 20 + uniform(random));
  row.logits[n / 2] = 20;
  for (size_t i = 1; i < n; i += 5)
    if (i != n / 2) row.hidden.add(i);
  if (random() % 2 == 0)  // whole words and groups
    for (size_t i = 0; i < n / 3; ++i) row.hidden.add(i);
  // What is hidden may be better than the best that is left, by any amount.
  for (size_t i = 0; i < n; ++i)
    if (row.hidden.has(i) && random() % 3 == 0) row.logits[i] = 1e30F;
  row.peaks.resize(size_t(groups_of(n)));
  peaks_of(row.logits, row.hidden, row.peaks);
  return row;
}

TEST(Weights, PeaksAreTheLargestOfTheirGroups) {
  std::mt19937 random(2);
  for (const size_t n : {size_t{1}, size_t{127}, size_t{128}, size_t{129}, size_t{5000}, size_t{12800}}) {
    const Row row = row_of(random, n);
    std::vector<float> want(row.peaks.size(), -kMostLogit);
    for (size_t i = 0; i < n; ++i)
      if (!row.hidden.has(i)) want[i / Race::kGroup] = std::max(want[i / Race::kGroup], row.logits[i]);
    EXPECT_EQ(row.peaks, want) << n;
  }
}

TEST(Weights, SumsAreThoseOfExp) {
  std::mt19937 random(3);
  for (const size_t n : {size_t{1}, size_t{7}, size_t{127}, size_t{128}, size_t{129}, size_t{5000}, size_t{40000}}) {
    for (const float scale : {0.01F, 0.5F, 1.0F, 30.0F, 1e30F}) {
      const Row row = row_of(random, n);
      const Weighing how{20, scale, -20, {15, kMostLogit}, {3, 12}, true};
      for (const size_t begin : {size_t{0}, row.peaks.size() / 2}) {
        const WeightSums got = sum_weights(row.logits, row.peaks, how, row.hidden, begin, row.peaks.size());
        WeightSums want;
        double magnitude = 0;
        for (size_t i = begin * Race::kGroup; i < n; ++i) {
          if (row.hidden.has(i) || !(row.logits[i] >= how.least)) continue;
          const double x = double{row.logits[i]} - how.best, w = std::exp(x * how.scale);
          want.all += w;
          if (how.near.has(row.logits[i])) want.near += w;
          if (how.far.has(row.logits[i])) want.far += w;
          want.moment += w * x;
          magnitude += w * std::fabs(x);
        }
        const double light = double((row.peaks.size() - begin) * Race::kGroup) * std::exp(-kDepth);
        EXPECT_NEAR(got.all, want.all, kWeightError * want.all + light) << n << " " << scale;
        EXPECT_NEAR(got.near, want.near, kWeightError * want.near + light) << n << " " << scale;
        EXPECT_NEAR(got.far, want.far, kWeightError * want.far + light) << n << " " << scale;
        EXPECT_NEAR(got.moment, want.moment, kWeightError * magnitude + light * (45 + kDepth / scale))
            << n << " " << scale;
      }
    }
  }
}

TEST(Weights, ExactSumsAreThoseOfExp) {
  std::mt19937 random(5);
  for (const size_t n : {size_t{1}, size_t{129}, size_t{5000}}) {
    for (const double scale : {0.01, 1.0, 15.0, 1e30}) {
      const Row row = row_of(random, n);
      const ExactSums got = exact_sums(row.logits, row.peaks, row.hidden, {20, scale, -20, {3, 12}});
      ExactSums want;
      double magnitude = 0;
      for (size_t i = 0; i < n; ++i) {
        if (row.hidden.has(i) || !(row.logits[i] >= -20)) continue;
        const double x = double{row.logits[i]} - 20, w = std::exp(x * scale);
        want.all += w;
        if (row.logits[i] >= 3 && row.logits[i] <= 12) want.near += w;
        want.moment += w * x;
        magnitude += std::fabs(w * x);
      }
      EXPECT_NEAR(got.all, want.all, 1e-13 * want.all) << n << " " << scale;
      EXPECT_NEAR(got.near, want.near, 1e-13 * want.near + 1e-290) << n << " " << scale;
      EXPECT_NEAR(got.moment, want.moment, 1e-13 * magnitude) << n << " " << scale;
    }
  }
}

TEST(Weights, TokensBetweenAreFoundAndCounted) {
  std::mt19937 random(6);
  for (const size_t n : {size_t{1}, size_t{129}, size_t{5000}}) {
    const Row row = row_of(random, n);
    for (const auto& [inner, outer] : {std::pair<LogitRange, LogitRange>{{10, kMostLogit}, {5, kMostLogit}},
                                       {{0, 10}, {-10, 12}},
                                       {{kMostLogit, kMostLogit}, {}},
                                       {{}, {}}}) {
      std::vector<Candidate> got{{-7, 0}};
      const size_t inside = tokens_between(row.logits, row.peaks, row.hidden, inner, outer, got);
      std::sort(got.begin(), got.end(), [](const Candidate& a, const Candidate& b) { return a.id < b.id; });
      std::vector<text::TokenId> ids, want{-7};
      size_t count = 0;
      for (const Candidate& c : got) ids.push_back(c.id);
      for (size_t i = 0; i < n; ++i) {
        if (row.hidden.has(i) || row.logits[i] == -kMostLogit) continue;
        count += inner.has(row.logits[i]) ? 1 : 0;
        if (outer.has(row.logits[i]) && !inner.has(row.logits[i])) want.push_back(text::TokenId(i));
      }
      EXPECT_EQ(ids, want) << n;
      EXPECT_EQ(inside, count) << n;
      for (size_t i = 1; i < got.size(); ++i) EXPECT_EQ(got[i].logit, row.logits[size_t(got[i].id)]);
    }
  }
}

TEST(Weights, StepsAreCounted) {
  std::vector<float> logits(128, -kMostLogit);
  const float some[] = {10, 9.5F, 9.4F, 8, 7.6F, 7.4F, 0, -3};
  std::copy(std::begin(some), std::end(some), logits.begin());
  std::vector<uint32_t> counts(5, 0);  // from 10 down to 8 in steps of a half, lower ones, others
  count_steps(logits, {-2, 10}, 10, 2, counts);
  EXPECT_EQ(counts, (std::vector<uint32_t>{0, 2, 0, 4, 122}));
  EXPECT_EQ(least_above(logits, {-2, 10}), 0);
  EXPECT_EQ(least_above(logits, {11, 12}), 12);
}

TEST(Weights, RatiosOfGroupsAreBounded) {
  std::mt19937 random(7);
  const Row row = row_of(random, 5000);
  for (const float scale : {0.01F, 1.0F, 30.0F, 1e30F}) {
    std::vector<float> bounds(row.peaks.size(), 0.25F);
    race_bounds(row.peaks, {20, scale, 5, {}, {}, false}, 18, bounds);
    for (size_t g = 0; g < bounds.size(); ++g) {
      const double most = std::exp((std::min(row.peaks[g], 18.0F) - 20) * double{scale}) * double(Race::kGroup) / 0.25;
      if (row.peaks[g] < 5) {
        EXPECT_EQ(bounds[g], -1);
        continue;
      }
      EXPECT_GE(bounds[g], most);
      EXPECT_LE(bounds[g], most * (1 + 1e-4) + 1e-34);
    }
  }
}

TEST(Weights, MomentsAreThoseOfWhatIsThere) {
  std::mt19937 random(4);
  for (const size_t n : {size_t{1}, size_t{129}, size_t{5000}}) {
    const Row row = row_of(random, n);
    const LogitMoments got = moments_of(row.logits, row.hidden, -10, 20);
    LogitMoments want;
    for (size_t i = 0; i < n; ++i) {
      if (row.hidden.has(i) || row.logits[i] < -10) continue;
      const double x = double{row.logits[i]} - 20;
      want.count += 1;
      want.sum += x;
      want.squares += x * x;
    }
    EXPECT_EQ(got.count, want.count);
    EXPECT_NEAR(got.sum, want.sum, 1e-9 * std::fabs(want.sum));
    EXPECT_NEAR(got.squares, want.squares, 1e-9 * want.squares);
  }
}

}  // namespace
}  // namespace lumen::model::infer
