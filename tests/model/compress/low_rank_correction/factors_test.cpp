// needs: cpu. Low-rank sums that give a matrix back what rounding took, against the bound of Eckart and Young computed
// plainly in double.
#include "model/compress/low_rank_correction/factors.h"

#include <gtest/gtest.h>

#include "model/linear/matrix.h"
#include "tests/model/tiny.h"
#include "tests/run/kept_kernels.h"

namespace lumen::model::compress {
namespace {

struct Case {
  int64_t rows, columns;
  arch::Weight w, rounded, gram;

  // `seen`: rows of the text; fewer than columns leave a gram without an inverse.
  Case(int64_t n, int64_t k, int64_t seen, uint32_t seed) : rows(n), columns(k) {
    std::mt19937 random(seed);
    std::normal_distribution<float> normal;
    std::vector<float> a(n * k), b(n * k), x(seen * k), h(k * k);
    for (int64_t i = 0; i < n * k; ++i) {
      a[i] = normal(random);
      b[i] = std::nearbyint(a[i] * 2) / 2;
    }
    // Columns are read with sizes that differ much, and depend on each other.
    for (int64_t t = 0; t < seen; ++t)
      for (int64_t c = 0; c < k; ++c)
        x[t * k + c] = normal(random) * (1 + c % 7) + (c > 0 ? 0.7F * x[t * k + c - 1] : 0);
    for (int64_t i = 0; i < k; ++i)
      for (int64_t j = 0; j < k; ++j) {
        double sum = 0;
        for (int64_t t = 0; t < seen; ++t) sum += double{x[t * k + i]} * x[t * k + j];
        h[i * k + j] = sum;
      }
    const graph::Dim rows_dim(n), columns_dim(k);
    w = arch::f32_weight({rows_dim, columns_dim}, a);
    rounded = arch::f32_weight({rows_dim, columns_dim}, b);
    gram = arch::f32_weight({columns_dim, columns_dim}, h);
  }

  // tr(e H e^T), H the gram or 1.
  double energy(const std::vector<double>& e, bool weighted) const {
    double sum = 0;
    for (int64_t r = 0; r < rows; ++r)
      for (int64_t i = 0; i < columns; ++i) {
        const double* x = e.data() + r * columns;
        double line = weighted ? 0 : x[i];
        for (int64_t j = 0; weighted && j < columns; ++j) line += double{gram.f32()[i * columns + j]} * x[j];
        sum += x[i] * line;
      }
    return sum;
  }

  std::vector<double> lost(const linear::LowRankPair* pair) const {
    std::vector<double> e(rows * columns);
    for (int64_t r = 0; r < rows; ++r)
      for (int64_t c = 0; c < columns; ++c) {
        double& x = e[r * columns + c];
        x = double{w.f32()[r * columns + c]} - rounded.f32()[r * columns + c];
        const int64_t rank = pair ? pair->left.columns() : 0;
        for (int64_t i = 0; i < rank; ++i)
          x -= double{pair->left.f32()[r * rank + i]} * pair->right.f32()[i * columns + c];
      }
    return e;
  }

  // What no sum of this rank goes below: the eigenvalues of E H E^T beyond the rank largest.
  double bound(int64_t rank, bool weighted) const {
    const std::vector<double> e = lost(nullptr);
    std::vector<double> seen(rows * columns);
    for (int64_t r = 0; r < rows; ++r)
      for (int64_t i = 0; i < columns; ++i) {
        double& sum = seen[r * columns + i];
        if (!weighted) sum = e[r * columns + i];
        for (int64_t j = 0; weighted && j < columns; ++j)
          sum += double{gram.f32()[i * columns + j]} * e[r * columns + j];
      }
    linear::Matrix m(rows, rows);
    for (int64_t r = 0; r < rows; ++r)
      for (int64_t s = 0; s < rows; ++s)
        for (int64_t c = 0; c < columns; ++c) m.at(r, s) += seen[r * columns + c] * e[s * columns + c];
    std::vector<double> values = eigenvectors(m).values;
    std::ranges::sort(values, std::greater());
    double sum = 0;
    for (size_t i = rank; i < values.size(); ++i) sum += std::max(values[i], 0.0);
    return sum;
  }

  Factors factors(int64_t rank, bool weighted, double damping = 0) const {
    return factors_of(engine(), w, rounded, weighted ? &gram : nullptr, {.rank = rank, .damping = damping});
  }
};

TEST(Factors, AreAsGoodAsCanBe) {
  for (const bool weighted : {false, true})
    for (const auto& [n, k, seen] : {std::tuple(24, 40, 100), std::tuple(40, 24, 100), std::tuple(30, 48, 20)}) {
      const Case c(n, k, seen, 1);
      const double all = c.energy(c.lost(nullptr), weighted);
      for (const int64_t rank : {1, 4, 11}) {
        const Factors f = c.factors(rank, weighted);
        const double left = c.energy(c.lost(&f.pair), weighted);
        EXPECT_NEAR(left, c.bound(rank, weighted), 1e-5 * all) << n << " " << k << " " << rank << " " << weighted;
        EXPECT_LT(left, all);
        const std::vector<double> w(c.w.f32().begin(), c.w.f32().end());
        const double size = c.energy(w, weighted);
        const ErrorFigures &before = f.before, &after = f.after;
        EXPECT_NEAR(weighted ? before.outputs : before.weights, std::sqrt(all / size), 1e-4);
        EXPECT_NEAR(weighted ? after.outputs : after.weights, std::sqrt(left / size), 1e-3);
        EXPECT_EQ(after.outputs < 0, !weighted);
      }
    }
}

TEST(Factors, WhatIsReadCounts) {
  const Case c(24, 40, 100, 2);
  const Factors alone = c.factors(4, false), weighted = c.factors(4, true);
  EXPECT_LT(c.energy(c.lost(&weighted.pair), true), 0.9 * c.energy(c.lost(&alone.pair), true));
  EXPECT_LT(c.energy(c.lost(&alone.pair), false), c.energy(c.lost(&weighted.pair), false));
}

TEST(Factors, MoreRankIsLessErrorAndAllOfItNone) {
  for (const bool weighted : {false, true})
    for (const auto& [n, k] : {std::pair(12, 20), std::pair(20, 12)}) {
      const Case c(n, k, 50, 3);
      const double all = c.energy(c.lost(nullptr), weighted);
      double before = all;
      for (int64_t rank = 1; rank <= 12; ++rank) {
        const Factors f = c.factors(rank, weighted, 0.01);
        const double left = c.energy(c.lost(&f.pair), weighted);
        EXPECT_LT(left, before + 1e-9 * all) << rank;
        before = left;
      }
      EXPECT_LT(before, 1e-9 * all);
      const Factors whole = c.factors(99, weighted);  // as many as there are
      EXPECT_EQ(whole.pair.left.columns(), 12);
      for (size_t i = 0; i < whole.values.size(); ++i) EXPECT_NEAR(whole.values[i], c.w.f32()[i], 1e-4);
    }
}

// What is too large to be decomposed exactly.
TEST(Factors, OfLargeMatricesNearlyTheBest) {
  const Case c(560, 620, 900, 4);
  const int64_t rank = 16;
  const double all = c.energy(c.lost(nullptr), true), least = c.bound(rank, true);
  const Factors f = c.factors(rank, true);
  const double left = c.energy(c.lost(&f.pair), true);
  EXPECT_LT(all - least - (all - left), 2e-3 * (all - least));
  EXPECT_GT(left, least * (1 - 1e-4));
  run::Engine alone(run::Engine::Options{.cache_folder = kept_kernels(), .threads = 1, .machine = nullptr});
  const Factors again = factors_of(alone, c.w, c.rounded, &c.gram, {.rank = rank, .damping = 0});
  EXPECT_TRUE(again.pair.left.bytes == f.pair.left.bytes);
  EXPECT_TRUE(again.pair.right.bytes == f.pair.right.bytes);
}

// Nothing was lost, or nothing of it is seen: zeros, not quotients of zeros.
TEST(Factors, OfNothing) {
  Case c(8, 10, 20, 5);
  c.rounded = c.w;
  for (const bool weighted : {false, true}) {
    const Factors f = c.factors(3, weighted);
    for (const float v : f.pair.left.f32()) EXPECT_EQ(v, 0);
    for (const float v : f.pair.right.f32()) EXPECT_EQ(v, 0);
  }
  Case unseen(8, 10, 0, 6);
  const Factors f = unseen.factors(3, true);
  for (const float v : f.pair.left.f32()) EXPECT_TRUE(std::isfinite(v));
  for (const float v : f.pair.right.f32()) EXPECT_TRUE(std::isfinite(v));
  EXPECT_LT(f.before.outputs, 0);
}

}  // namespace
}  // namespace lumen::model::compress
