// needs: none. Hadamard matrices: H H^T = n I for powers of two and for the widths that models have.
#include "graph/equivalence/hadamard.h"

#include <gtest/gtest.h>

#include <cmath>

#include "base/error.h"

namespace lumen::graph {
namespace {

TEST(Hadamard, RowsOfEveryFactorAreOrthogonal) {
  for (const int64_t n :
       {1, 2, 8, 64, 12, 20, 24, 28, 36, 40, 44, 52, 60, 76, 108, 140, 148, 172, 180, 11008, 14336, 13824}) {
    int64_t order = 1;
    for (const SignMatrix& h : hadamard_factors(n)) {
      order *= h.n;
      ASSERT_EQ(h.values.size(), static_cast<size_t>(h.n * h.n));
      for (const int8_t v : h.values) ASSERT_EQ(v * v, 1);
      for (int64_t a = 0; a < h.n; ++a)
        for (int64_t b = 0; b <= a; ++b) {
          int64_t dot = 0;
          for (int64_t k = 0; k < h.n; ++k) dot += h.at(a, k) * h.at(b, k);
          ASSERT_EQ(dot, a == b ? h.n : 0) << n << ": rows " << a << ", " << b << " of " << h.n;
        }
    }
    EXPECT_EQ(order, n);
  }
}

TEST(Hadamard, FactorsMultiplyAsTheirKroneckerProduct) {
  const auto factors = hadamard_factors(192);
  ASSERT_GT(factors.size(), 1U);
  std::vector<double> row(192, 0);
  constexpr int64_t kAt = 77;
  row[kAt] = 1;
  multiply_hadamard(row, factors);
  for (int64_t c = 0; c < 192; ++c) {
    int64_t r = kAt, left = c, rest = 192, sign = 1;
    for (const SignMatrix& f : factors) {
      rest /= f.n;
      sign *= f.at(r / rest, left / rest);
      r %= rest;
      left %= rest;
    }
    EXPECT_NEAR(row[static_cast<size_t>(c)], static_cast<double>(sign) / std::sqrt(192.0), 1e-12);
  }
  multiply_hadamard(row, factors, true);
  for (int64_t c = 0; c < 192; ++c) EXPECT_NEAR(row[static_cast<size_t>(c)], c == kAt ? 1 : 0, 1e-12);
}

TEST(Hadamard, UnknownOrdersAreRefused) {
  EXPECT_FALSE(has_hadamard(6));
  EXPECT_TRUE(has_hadamard(24));
  EXPECT_THROW((void)hadamard_factors(30), Error);
}

}  // namespace
}  // namespace lumen::graph
