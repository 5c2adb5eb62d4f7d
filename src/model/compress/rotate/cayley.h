// Descent among orthogonal matrices by Cayley transforms (Li et al. 2020, arXiv 2002.01113), in f64: with M the
// momentum, A = M R^T - R (R^T M R^T) / 2 and W = A - A^T, R becomes (I - tau/2 W)^-1 (I + tau/2 W) R, found by five
// fixed-point iterations. Same bits at any thread count. Proved by tests/model/compress/rotate/cayley_test.cpp.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace lumen::model::compress {

class CayleyDescent {
 public:
  // Starts at an orthogonal matrix [n, n], row-major. `momentum`: the fraction of the previous direction that is kept.
  CayleyDescent(int64_t n, std::vector<double> start, double momentum = 0);

  // A step against the gradient with respect to R: tau |W| = `rate`, in the column-sum norm, whatever the gradient's
  // unit; at most 1, above which the fixed-point iteration may diverge. R is orthogonal afterwards, to f64's precision.
  void step(std::span<const double> gradient, double rate);

  const std::vector<double>& matrix() const { return r_; }

 private:
  void orthogonalise();

  const int64_t n_;
  const double momentum_;
  std::vector<double> r_, m_;
};

// a b for square matrices [n, n], row-major.
std::vector<double> multiply_square(const std::vector<double>& a, const std::vector<double>& b, int64_t n);
std::vector<double> transposed_square(const std::vector<double>& a, int64_t n);

}  // namespace lumen::model::compress
