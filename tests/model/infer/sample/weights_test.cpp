// needs: none. Passes over a whole vocabulary beside plain loops in f64.
#include "model/infer/sample/weights.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <vector>

#include "model/infer/sample/race.h"

namespace lumen::model {
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
        double magnitude = 0, count = 0;
        for (size_t i = begin * Race::kGroup; i < n; ++i) {
          if (row.hidden.has(i) || !(row.logits[i] >= how.least)) continue;
          const double x = double{row.logits[i]} - how.best, w = std::exp(x * how.scale);
          want.all += w;
          if (how.near.has(row.logits[i])) want.near += w;
          if (how.far.has(row.logits[i])) want.far += w;
          want.moment += w * x;
          magnitude += w * std::fabs(x);
          count += 1;
        }
        const double light = count * std::exp(-kDepth);
        EXPECT_NEAR(got.all, want.all, kWeightError * want.all + light) << n << " " << scale;
        EXPECT_NEAR(got.near, want.near, kWeightError * want.near + light) << n << " " << scale;
        EXPECT_NEAR(got.far, want.far, kWeightError * want.far + light) << n << " " << scale;
        EXPECT_NEAR(got.moment, want.moment, kWeightError * magnitude + 45 * light) << n << " " << scale;
      }
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
}  // namespace lumen::model
