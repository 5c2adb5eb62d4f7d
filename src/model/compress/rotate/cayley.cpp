#include "model/compress/rotate/cayley.h"

#include <algorithm>
#include <cmath>

#include "base/check.h"
#include "base/threads/team.h"

namespace lumen::model::compress {
namespace {

constexpr int kTurns = 5;                   // fixed-point iterations
constexpr double kOrthogonal = 1e-13;       // tolerance of R^T R - I
constexpr int kMostSweeps = 20;             // of orthogonalise(); each squares the error
constexpr int64_t kRows = 16, kInner = 64;  // of a tile of a product

}  // namespace

std::vector<double> multiply_square(const std::vector<double>& a, const std::vector<double>& b, int64_t n) {
  std::vector<double> out(n * n, 0);
  // Each number is summed in the order of b's rows.
  const auto rows_from = [&](int64_t first) {
    for (int64_t inner = 0; inner < n; inner += kInner)
      for (int64_t r = first; r < std::min(first + kRows, n); ++r)
        for (int64_t k = inner; k < std::min(inner + kInner, n); ++k) {
          const double x = a[r * n + k];
          double* const to = out.data() + r * n;
          const double* const from = b.data() + k * n;
          for (int64_t j = 0; j < n; ++j) to[j] += x * from[j];
        }
  };
  parallel_for(0, (n + kRows - 1) / kRows, {.grain = 1, .is_worth = n >= 64}, [&](int64_t i) { rows_from(i * kRows); });
  return out;
}

std::vector<double> transposed_square(const std::vector<double>& a, int64_t n) {
  std::vector<double> out(n * n);
  for (int64_t i = 0; i < n; ++i)
    for (int64_t j = 0; j < n; ++j) out[j * n + i] = a[i * n + j];
  return out;
}

CayleyDescent::CayleyDescent(int64_t n, std::vector<double> start, double momentum)
    : n_(n), momentum_(momentum), r_(std::move(start)), m_(n * n, 0) {
  LUMEN_CHECK(std::ssize(r_) == n * n);
}

void CayleyDescent::step(std::span<const double> gradient, double rate) {
  LUMEN_CHECK(std::ssize(gradient) == n_ * n_);
  for (size_t i = 0; i < m_.size(); ++i) m_[i] = momentum_ * m_[i] - gradient[i];
  const std::vector<double> turned = multiply_square(m_, transposed_square(r_, n_), n_);      // M R^T
  const std::vector<double> inside = multiply_square(transposed_square(r_, n_), turned, n_);  // R^T M R^T
  const std::vector<double> outside = multiply_square(r_, inside, n_);
  std::vector<double> a(turned), w(turned.size());
  for (size_t i = 0; i < a.size(); ++i) a[i] -= 0.5 * outside[i];
  double norm = 0;
  for (int64_t j = 0; j < n_; ++j) {
    double sum = 0;
    for (int64_t i = 0; i < n_; ++i) {
      w[i * n_ + j] = a[i * n_ + j] - a[j * n_ + i];
      sum += std::abs(w[i * n_ + j]);
    }
    norm = std::max(norm, sum);
  }
  if (!(norm > 0)) return;
  const double tau = std::min(rate, 1.0) / norm;
  m_ = multiply_square(w, r_, n_);
  std::vector<double> next = r_;
  for (size_t i = 0; i < next.size(); ++i) next[i] += tau * m_[i];
  for (int k = 0; k < kTurns; ++k) {
    std::vector<double> between(r_);
    for (size_t i = 0; i < between.size(); ++i) between[i] += next[i];
    const std::vector<double> moved = multiply_square(w, between, n_);
    for (size_t i = 0; i < next.size(); ++i) next[i] = r_[i] + 0.5 * tau * moved[i];
  }
  r_ = std::move(next);
  orthogonalise();
}

// Newton-Schulz iteration for the nearest orthogonal matrix: R (3 I - R^T R) / 2.
void CayleyDescent::orthogonalise() {
  for (int sweep = 0; sweep < kMostSweeps; ++sweep) {
    std::vector<double> gram = multiply_square(transposed_square(r_, n_), r_, n_);
    double off = 0;
    for (int64_t i = 0; i < n_; ++i)
      for (int64_t j = 0; j < n_; ++j) off = std::max(off, std::abs(gram[i * n_ + j] - (i == j ? 1 : 0)));
    if (off < kOrthogonal) return;
    for (int64_t i = 0; i < n_; ++i)
      for (int64_t j = 0; j < n_; ++j) gram[i * n_ + j] = (i == j ? 1.5 : 0) - 0.5 * gram[i * n_ + j];
    r_ = multiply_square(r_, gram, n_);
  }
  LUMEN_CHECK(false, "a rotation went so far that it is none any more");
}

}  // namespace lumen::model::compress
