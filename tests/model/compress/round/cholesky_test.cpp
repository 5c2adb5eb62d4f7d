// Needs: cpu. The factor from the bottom right corner: (U + I) D (U + I)^T is H, exactly, by tiles, and after dead
// ends.
#include "model/compress/round/cholesky.h"

#include <cmath>
#include <random>

#include "base/threads/team.h"
#include "model/compress/round/triangle.h"
#include "tests/model/compress/round/moments.h"

namespace lumen::model::compress {
namespace {

// The largest difference between (U + I) D (U + I)^T and h with damping, over a mean of the diagonal.
double residual(const Factor& f, const std::vector<float>& h, double damping) {
  const int64_t n = f.order;
  double worst = 0, mean = 0;
  std::vector<double> r(static_cast<size_t>(n * n));
  for (int64_t i = 0; i < n; ++i) {
    mean += h[place(i, n, i)] / static_cast<double>(n);
    for (int64_t k = i; k < n; ++k)
      r[place(i, n, k)] = (i == k ? 1 : f.u[place(i, n, k)]) * std::sqrt(f.d[static_cast<size_t>(k)]);
  }
  const int64_t step = std::max<int64_t>(1, n / 37);
  for (int64_t i = 0; i < n; i += step)
    for (int64_t j = 0; j < n; ++j) {
      double sum = i == j ? -damping : 0;
      for (int64_t k = std::max(i, j); k < n; ++k) sum += r[place(i, n, k)] * r[place(j, n, k)];
      worst = std::max(worst, std::fabs(sum - h[place(std::min(i, j), n, std::max(i, j))]));
    }
  return worst / mean;
}

TEST(Cholesky, FactorsAreThoseOfTheMatrix) {
  run::Engine engine(engine_options());
  for (const int64_t n : {1, 2, 63, 64, 65, 300, 700}) {
    const std::vector<float> h = moments_of(activations(2 * n, n, 11), 2 * n, n);
    const auto f = factorize(engine, h, n, 0.01);
    ASSERT_TRUE(f.has_value()) << n;
    EXPECT_LT(residual(*f, h, 0.01), 2e-6) << n;  // u is f32
    for (int64_t i = 0; i < n; ++i)
      for (int64_t k = 0; k <= i; ++k) EXPECT_EQ(f->u[place(i, n, k)], 0);
  }
}

TEST(Cholesky, TilesOnTheEngineAgree) {
  const int64_t n = 2500;  // three tiles, the last not whole
  const std::vector<float> h = moments_of(activations(300, n, 12), 300, n);
  const double damping = 0.01 * mean_of_diagonal(h, n);
  run::Engine engine(engine_options());
  const auto exact = factorize(engine, h, n, damping, FactorMethod::exact);
  const auto tiles = factorize(engine, h, n, damping, FactorMethod::tiles);
  ASSERT_TRUE(exact && tiles);
  EXPECT_LT(residual(*tiles, h, damping), 2e-5);
  double worst = 0, size = 0;
  for (size_t k = 0; k < exact->u.size(); ++k) {
    worst = std::max<double>(worst, std::fabs(exact->u[k] - tiles->u[k]));
    size = std::max<double>(size, std::fabs(exact->u[k]));
  }
  EXPECT_LT(worst / size, 1e-3) << "of " << size;
}

TEST(Cholesky, ThreadsDoNotShow) {
  const int64_t n = 600;
  const std::vector<float> h = moments_of(activations(n, n, 13), n, n);
  std::vector<Factor> factors;
  for (const int threads : {1, 3}) {
    run::Engine engine(engine_options(threads));
    limit_loop_threads(threads);
    factors.push_back(*factorize(engine, h, n, 1));
  }
  limit_loop_threads(0);
  EXPECT_TRUE(std::ranges::equal(factors[0].u, factors[1].u));
  EXPECT_EQ(factors[0].d, factors[1].d);
}

TEST(Cholesky, WhatIsNotPositiveDefiniteHasNoFactor) {
  run::Engine engine(engine_options());
  const int64_t n = 130;
  std::vector<float> h = moments_of(activations(20, n, 14), 20, n);  // rank 20
  EXPECT_FALSE(factorize(engine, h, n, 0));
  EXPECT_TRUE(factorize(engine, h, n, 0.01 * mean_of_diagonal(h, n)));
  h[place(5, n, 5)] = -1;
  EXPECT_FALSE(factorize(engine, h, n, 0));
  EXPECT_FALSE(factorize(engine, std::vector<float>(4), 2, 0));
}

TEST(Cholesky, InversesUndoTheFactor) {
  run::Engine engine(engine_options());
  for (const int64_t n : {1, 5, 64, 200, 700}) {
    const std::vector<float> h = moments_of(activations(2 * n, n, 15), 2 * n, n);
    const Factor f = *factorize(engine, h, n, 0.1);
    const std::vector<float> x = inverse(f);
    double worst = 0;
    for (int64_t i = 0; i < n; ++i)
      for (int64_t j = 0; j < n; ++j) {
        double sum = x[place(i, n, j)];
        for (int64_t k = i + 1; k <= j; ++k) sum += double{f.u[place(i, n, k)]} * x[place(k, n, j)];
        worst = std::max(worst, std::fabs(sum - (i == j)));
      }
    EXPECT_LT(worst, 1e-5) << n;
  }
}

}  // namespace
}  // namespace lumen::model::compress
