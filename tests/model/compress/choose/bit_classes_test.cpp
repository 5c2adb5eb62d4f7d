// needs: none. Fuzzy c-means on values whose classes are plain, and shifts that hit a target.
#include "model/compress/choose/bit_classes.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <random>

#include "base/error.h"

namespace lumen::model::compress {
namespace {

using testing::ElementsAre;

TEST(BitClasses, PlainClassesAreFound) {
  const std::vector<double> values = {0.01, 0.5, 0.012, 0.2, 0.09, 0.011, 0.51, 0.1, 0.21, 0.02};
  const FuzzyClasses f = fuzzy_classes(values);
  EXPECT_THAT(f.classes, ElementsAre(3, 0, 3, 1, 2, 3, 0, 2, 1, 3));
  ASSERT_EQ(f.centres.size(), 4U);
  EXPECT_NEAR(f.centres[0], 0.505, 0.01);
  EXPECT_NEAR(f.centres[3], 0.013, 0.01);
  for (const auto& u : f.memberships) EXPECT_NEAR(std::accumulate(u.begin(), u.end(), 0.0), 1, 1e-12);
  // The centres are a fixed point of the two equations.
  for (size_t k = 0; k < 4; ++k) {
    double sum = 0, weight = 0;
    for (size_t i = 0; i < values.size(); ++i) {
      sum += f.memberships[i][k] * f.memberships[i][k] * values[i];
      weight += f.memberships[i][k] * f.memberships[i][k];
    }
    EXPECT_NEAR(sum / weight, f.centres[k], 1e-4);
  }
  const std::vector<double> widths = {8, 6, 4, 2};
  EXPECT_THAT(bit_classes(values, widths).bits, ElementsAre(2, 8, 2, 6, 4, 2, 8, 4, 6, 2));
}

TEST(BitClasses, MembershipsByTheirFormula) {
  const std::vector<double> centres = {1, 0.5, 0};
  const std::vector<double> u = memberships(centres, 0.25, 2);
  for (size_t k = 0; k < 3; ++k) {
    double sum = 0;
    for (const double c : centres) sum += std::pow((0.25 - centres[k]) / (0.25 - c), 2);
    EXPECT_NEAR(u[k], 1 / sum, 1e-12);
  }
  EXPECT_THAT(memberships(centres, 0.5, 2), ElementsAre(0, 1, 0)) << "a centre itself";
}

TEST(BitClasses, OverlapsTakeTheLowerPrecision) {
  FuzzyOptions two;
  two.classes = 2;
  const std::vector<double> values = {0, 0, 0, 0.5, 1, 1, 1};
  const FuzzyClasses f = fuzzy_classes(values, two);
  EXPECT_NEAR(f.memberships[3][0], 0.5, 1e-6);
  EXPECT_EQ(f.classes[3], 1U);
  EXPECT_LT(f.margins[3], 1e-6);
}

TEST(BitClasses, TargetsAreHit) {
  std::mt19937 random(5);
  std::vector<double> values;
  std::vector<int64_t> sizes;
  for (int i = 0; i < 64; ++i) {
    values.push_back(std::exp(-5.0 * (random() / 4294967296.0)));
    sizes.push_back(100 + random() % 100);
  }
  const std::vector<double> widths = {8, 6, 4, 2};
  double last = 0;
  for (const double target : {2.0, 2.5, 3.0, 4.0, 5.5, 7.9, 8.0, 20.0}) {
    const BitClasses c = bit_classes(values, widths, target, sizes);
    EXPECT_LE(c.average, target + 1e-12);
    EXPECT_GE(c.average, std::min(target, 8.0) - 0.25) << target;
    EXPECT_GE(c.average, last);
    last = c.average;
    for (size_t i = 0; i < values.size(); ++i)
      for (size_t j = 0; j < values.size(); ++j)
        if (values[i] > values[j]) {
          EXPECT_GE(c.bits[i], c.bits[j]) << "what matters more never has fewer bits";
        }
  }
  EXPECT_THROW((void)bit_classes(values, widths, 1.9, sizes), Error);
}

TEST(BitClasses, OddValues) {
  const std::vector<double> widths = {8, 6, 4, 2};
  EXPECT_TRUE(bit_classes({}, widths).bits.empty());
  for (const std::vector<double>& values :
       {std::vector<double>{0.5}, {0, 0, 0}, {1, 1, 1, 1, 1}, {0, 1}, {1e-300, 1e300}, {3, 3, 3, 7}}) {
    const BitClasses c = bit_classes(values, widths);
    EXPECT_EQ(c.bits.size(), values.size());
    EXPECT_TRUE(std::isfinite(c.average));
    EXPECT_LE(bit_classes(values, widths, 5.0).average, 5);
  }
}

TEST(Significance, SharesOfDataSetsTogether) {
  const std::vector<std::vector<double>> energies = {{6, 2, 2}, {100, 800, 100}, {0, 0, 0}};
  const Significance s = significance(energies);
  EXPECT_NEAR(s.mean[0], (0.6 + 0.1) / 2, 1e-12);
  EXPECT_NEAR(s.mean[1], (0.2 + 0.8) / 2, 1e-12);
  EXPECT_NEAR(s.spread[0], 0.25, 1e-12);
  EXPECT_NEAR(s.spread[2], 0.05, 1e-12);
  EXPECT_NEAR(s.mean[0] + s.mean[1] + s.mean[2], 1, 1e-12);
  EXPECT_THROW((void)significance(std::vector<std::vector<double>>{{1, -1}}), Error);
  EXPECT_THROW((void)significance(std::vector<std::vector<double>>{{1, std::nan("")}}), Error);
  EXPECT_TRUE(significance({}).mean.empty());
}

}  // namespace
}  // namespace lumen::model::compress
