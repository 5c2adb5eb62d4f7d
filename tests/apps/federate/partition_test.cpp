// Needs: none. How data are parted among clients: every example once, shares as the draws say, roles of a play.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "apps/federate/allocation.h"
#include "base/error.h"

namespace lumen::federate {
namespace {

constexpr int64_t kClasses = 10;

std::vector<int32_t> labels(int64_t count) {
  std::vector<int32_t> out;
  for (int64_t i = 0; i < count; ++i) out.push_back((i * 7 + i / 13) % kClasses);
  return out;
}

void expect_whole(const Parts& parts, int64_t count) {
  std::vector<int64_t> all;
  for (const auto& part : parts) {
    EXPECT_TRUE(std::is_sorted(part.begin(), part.end()));
    all.insert(all.end(), part.begin(), part.end());
  }
  std::sort(all.begin(), all.end());
  std::vector<int64_t> wanted(count);
  std::iota(wanted.begin(), wanted.end(), 0);
  EXPECT_EQ(all, wanted);
}

double mean_distance(const Parts& parts, const std::vector<int32_t>& shown) {
  const std::vector<double> whole = histogram(shown, kClasses);
  double sum = 0;
  for (const auto& part : parts) {
    std::vector<int32_t> own;
    for (const int64_t i : part) own.push_back(shown[i]);
    sum += label_distance(histogram(own, kClasses), whole) / parts.size();
  }
  return sum;
}

TEST(Partitions, GiveEveryExampleToOneClient) {
  const std::vector<int32_t> shown = labels(3000);
  for (const uint64_t seed : {1, 2}) {
    const Parts even = even_parts(3000, 7, seed), by_class = class_wise_parts(shown, kClasses, 20, 0.5, seed),
                by_client = client_wise_parts(shown, kClasses, 20, 0.1, seed);
    for (const Parts& parts : {even, by_class, by_client}) expect_whole(parts, 3000);
    for (const auto& part : even) EXPECT_NEAR(part.size(), 3000.0 / 7, 1);
    for (const auto& part : by_class) EXPECT_GE(part.size(), 10U);
    for (const auto& part : by_client) EXPECT_EQ(part.size(), 150U);
  }
  EXPECT_EQ(class_wise_parts(shown, kClasses, 20, 0.5, 1), class_wise_parts(shown, kClasses, 20, 0.5, 1));
  EXPECT_NE(class_wise_parts(shown, kClasses, 20, 0.5, 1), class_wise_parts(shown, kClasses, 20, 0.5, 2));
}

TEST(Partitions, AreAsSkewedAsTheDrawsSay) {
  const std::vector<int32_t> shown = labels(4000);
  for (const bool is_by_class : {true, false}) {
    // Over some draws: one of them can be far from the usual.
    const auto mean = [&](double alpha) {
      double sum = 0;
      for (uint64_t seed = 1; seed <= 8; ++seed) {
        const Parts parts = is_by_class ? class_wise_parts(shown, kClasses, 10, alpha, seed)
                                        : client_wise_parts(shown, kClasses, 10, alpha, seed);
        sum += mean_distance(parts, shown) / 8;
      }
      return sum;
    };
    const double severe = mean(0.1), usual = mean(1), none = mean(1000);
    EXPECT_GT(severe, usual + 0.05);
    EXPECT_GT(usual, none + 0.05);
    EXPECT_LT(none, 0.01);
  }
}

// Mean and variance of a share of Dir(a, .., a) over n: 1/n and (n - 1) / (n^2 (n a + 1)).
TEST(Partitions, DrawDirichletShares) {
  for (const double alpha : {0.1, 0.5, 3.0}) {
    const std::vector<double> alphas(5, alpha);
    double mean = 0, square = 0;
    constexpr int kDraws = 20000;
    for (int i = 0; i < kDraws; ++i) {
      const std::vector<double> shares = dirichlet(alphas, 9, i, 0);
      EXPECT_NEAR(std::accumulate(shares.begin(), shares.end(), 0.0), 1, 1e-9);
      mean += shares[2] / kDraws;
      square += shares[2] * shares[2] / kDraws;
    }
    EXPECT_NEAR(mean, 0.2, 0.01) << alpha;
    EXPECT_NEAR(square - mean * mean, 4 / (25 * (5 * alpha + 1)), 0.004) << alpha;
  }
}

TEST(Partitions, RefuseWhatCannotBe) {
  const std::vector<int32_t> shown = labels(100);
  EXPECT_THROW((void)even_parts(3, 4, 1), Error);
  EXPECT_THROW((void)class_wise_parts(shown, kClasses, 50, 0.1, 1), Error);  // 10 for everybody are not there
}

TEST(Partitions, FindTheRolesOfAPlay) {
  const auto roles = roles_of("First:\nOne line.\nTwo: lines.\n\nAll:\nYes.\n\nFirst:\nThree.\n");
  ASSERT_EQ(roles.size(), 2U);
  EXPECT_EQ(roles[0].name, "First");
  EXPECT_EQ(roles[0].text, "One line.\nTwo: lines.\nThree.\n");
  EXPECT_EQ(roles[1].text, "Yes.\n");
  EXPECT_TRUE(roles_of("").empty());
  const Examples letters = examples_of("abcd\xc3", 2);
  EXPECT_EQ(letters.letters, (std::vector<int32_t>{'a', 'b', 'b', 'c', 'c', 'd'}));
  EXPECT_EQ(letters.shown, (std::vector<int32_t>{'c', 'd', kLetters - 1}));
}

TEST(Partitions, HaveDistances) {
  const std::vector<double> a = {5, 0}, b = {0, 5}, same = {50, 0};
  EXPECT_NEAR(label_distance(a, same), 0, 1e-12);
  EXPECT_GT(label_distance(a, b), 0.67);  // smoothing keeps it below ln 2
  EXPECT_LT(label_distance(a, b), std::log(2.0));
  const Weights x = {{"w", {1, 0}}}, y = {{"w", {0, 2}}}, z = {{"w", {3, 0}}};
  EXPECT_NEAR(change_distance(x, z), 0, 1e-12);
  EXPECT_NEAR(change_distance(x, y), std::log(2.0), 1e-12);
}

}  // namespace
}  // namespace lumen::federate
