#include "model/compress/equivalent_transform/rotation.h"

#include <cmath>
#include <numbers>

#include "base/check.h"
#include "base/error.h"
#include "graph/ir/eval.h"

namespace lumen::model::compress {

namespace {

constexpr double kOrthogonal = 1e-6;
constexpr uint32_t kSigns = 0x726f7401, kNormals = 0x726f7402;

double normal(uint32_t seed, uint64_t element) {
  const double u = 1 - graph::uniform_random(seed, kNormals, 2 * element),
               v = graph::uniform_random(seed, kNormals, 2 * element + 1);
  return std::sqrt(-2 * std::log(u)) * std::cos(2 * std::numbers::pi * v);
}

}  // namespace

Rotation Rotation::plain_hadamard(int64_t n) {
  Rotation r(n);
  r.factors_ = graph::hadamard_factors(n);
  return r;
}

Rotation Rotation::hadamard(int64_t n, uint32_t seed) {
  Rotation r = plain_hadamard(n);
  for (int64_t i = 0; i < n; ++i) r.signs_.push_back(graph::uniform_random(seed, kSigns, i) < 0.5F ? -1 : 1);
  return r;
}

Rotation Rotation::random(int64_t n, uint32_t seed) {
  Rotation r(n);
  r.matrix_.resize(n * n);
  for (size_t i = 0; i < r.matrix_.size(); ++i) r.matrix_[i] = normal(seed, i);
  // Gram-Schmidt, each row twice for accuracy.
  const auto row = [&](int64_t i) { return std::span(r.matrix_).subspan(i * n, n); };
  for (int64_t i = 0; i < n; ++i) {
    for (const int pass : {0, 1}) {
      (void)pass;
      for (int64_t j = 0; j < i; ++j) {
        double dot = 0;
        for (int64_t k = 0; k < n; ++k) dot += row(i)[k] * row(j)[k];
        for (int64_t k = 0; k < n; ++k) row(i)[k] -= dot * row(j)[k];
      }
    }
    double size = 0;
    for (const double x : row(i)) size += x * x;
    for (double& x : row(i)) x /= std::sqrt(size);
  }
  return r;
}

Rotation Rotation::given(int64_t n, std::vector<double> matrix) {
  if (std::ssize(matrix) != n * n) throw user_error("a rotation of {} numbers is a matrix of {} x {}", n, n, n);
  Rotation r(n);
  r.matrix_ = std::move(matrix);
  for (int64_t i = 0; i < n; ++i)
    for (int64_t j = 0; j <= i; ++j) {
      double dot = 0;
      for (int64_t k = 0; k < n; ++k) dot += r.matrix_[i * n + k] * r.matrix_[j * n + k];
      if (!(std::abs(dot - (i == j ? 1 : 0)) < kOrthogonal))
        throw user_error("the matrix is no rotation: the product of its rows {} and {} is {}", j, i, dot);
    }
  return r;
}

void Rotation::apply(std::span<double> row) const {
  LUMEN_CHECK(std::ssize(row) == n_);
  apply_all(row);
}

void Rotation::apply_all(std::span<double> rows) const {
  const int64_t count = std::ssize(rows) / n_;
  LUMEN_CHECK(std::ssize(rows) == count * n_);
  if (!matrix_.empty()) {
    // Each number is summed in the order of the matrix's rows, for any number of rows.
    std::vector<double> out(rows.size(), 0);
    for (int64_t k = 0; k < n_; ++k)
      for (int64_t r = 0; r < count; ++r) {
        const double x = rows[r * n_ + k];
        double* const to = out.data() + r * n_;
        const double* const from = matrix_.data() + k * n_;
        for (int64_t j = 0; j < n_; ++j) to[j] += x * from[j];
      }
    std::copy(out.begin(), out.end(), rows.begin());
    return;
  }
  for (int64_t r = 0; r < count; ++r) {
    const std::span row = rows.subspan(r * n_, n_);
    for (size_t i = 0; i < signs_.size(); ++i) row[i] *= signs_[i];
    graph::multiply_hadamard(row, factors_);
  }
}

void Rotation::undo(std::span<double> row) const {
  LUMEN_CHECK(std::ssize(row) == n_);
  if (!matrix_.empty()) {
    std::vector<double> out(row.size(), 0);
    for (size_t i = 0; i < row.size(); ++i)
      for (size_t j = 0; j < row.size(); ++j) out[i] += row[j] * matrix_[i * row.size() + j];
    std::copy(out.begin(), out.end(), row.begin());
    return;
  }
  graph::multiply_hadamard(row, factors_, true);
  for (size_t i = 0; i < signs_.size(); ++i) row[i] *= signs_[i];
}

std::vector<double> Rotation::matrix() const {
  std::vector<double> out(n_ * n_, 0);
  for (int64_t i = 0; i < n_; ++i) {
    const std::span row = std::span(out).subspan(i * n_, n_);
    row[i] = 1;
    apply(row);
  }
  return out;
}

}  // namespace lumen::model::compress
