#include "model/train/rewrite/matrix.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "base/check.h"

namespace lumen::model {
namespace {

constexpr int kMostSteps = 100;  // of QL for one eigenvalue; two or three are usual

double dot(const double* a, const double* b, int64_t n) {
  // Four sums hide how long an addition takes.
  double sums[4] = {0, 0, 0, 0};
  int64_t i = 0;
  for (; i + 4 <= n; i += 4)
    for (int64_t k = 0; k < 4; ++k) sums[k] += a[i + k] * b[i + k];
  for (; i < n; ++i) sums[0] += a[i] * b[i];
  return (sums[0] + sums[1]) + (sums[2] + sums[3]);
}

void add_scaled(double* to, double factor, const double* from, int64_t n) {
#pragma omp simd
  for (int64_t i = 0; i < n; ++i) to[i] += factor * from[i];
}

// Makes x [n] the v of a reflection 1 - factor v v^T that takes x to a multiple of the first unit vector; the multiple.
struct Reflection {
  double factor, multiple;
};
Reflection reflect(double* x, int64_t n) {
  const double beyond = dot(x + 1, x + 1, n - 1);
  if (beyond == 0) return {0, x[0]};
  const double norm = std::sqrt(x[0] * x[0] + beyond);
  const double multiple = x[0] > 0 ? -norm : norm;
  x[0] -= multiple;
  return {2 / (x[0] * x[0] + beyond), multiple};
}

// (1 - factor v v^T) x
void apply(double factor, const double* v, double* x, int64_t n) {
  add_scaled(x, -factor * dot(v, x, n), v, n);
}

// Symmetric a becomes Q T Q^T: the diagonals of the tridiagonal T, and a becomes Q.
void tridiagonalize(Matrix& a, std::vector<double>& diagonal, std::vector<double>& beside) {
  const int64_t n = a.rows();
  Matrix q(n, n);
  std::vector<double> factors(n), p(n);
  for (int64_t k = 0; k + 1 < n; ++k) {
    const int64_t rest = n - k - 1;
    double* v = a.column(k) + k + 1;
    const Reflection reflection = reflect(v, rest);
    const double factor = reflection.factor;
    beside[k] = reflection.multiple;
    factors[k] = factor;
    if (factor == 0) continue;
    // The rest becomes rest - v w^T - w v^T, of which the lower triangle is kept.
    std::fill(p.begin(), p.end(), 0);
    for (int64_t c = 0; c < rest; ++c) {
      const double* column = a.column(k + 1 + c) + k + 1;
      p[c] += dot(column + c, v + c, rest - c);
      add_scaled(p.data() + c + 1, v[c], column + c + 1, rest - c - 1);
    }
    for (int64_t c = 0; c < rest; ++c) p[c] *= factor;
    add_scaled(p.data(), -factor / 2 * dot(p.data(), v, rest), v, rest);
    for (int64_t c = 0; c < rest; ++c) {
      double* column = a.column(k + 1 + c) + k + 1;
      add_scaled(column + c, -p[c], v + c, rest - c);
      add_scaled(column + c, -v[c], p.data() + c, rest - c);
    }
  }
  for (int64_t k = 0; k < n; ++k) {
    diagonal[k] = a.at(k, k);
    q.at(k, k) = 1;
  }
  for (int64_t k = n - 2; k >= 0; --k)
    for (int64_t c = k + 1; c < n; ++c) apply(factors[k], a.column(k) + k + 1, q.column(c) + k + 1, n - k - 1);
  a = std::move(q);
}

void rotate(double* left, double* right, double cosine, double sine, int64_t n) {
#pragma omp simd
  for (int64_t i = 0; i < n; ++i) {
    const double l = left[i], r = right[i];
    left[i] = cosine * l - sine * r;
    right[i] = sine * l + cosine * r;
  }
}

// One implicit QL step on rows first .. last of the tridiagonal (d, e), shifted by an eigenvalue of its first two rows.
void ql_step(std::vector<double>& d, std::vector<double>& e, Matrix& vectors, int64_t first, int64_t last) {
  double g = (d[first + 1] - d[first]) / (2 * e[first]);
  g = d[last] - d[first] + e[first] / (g + std::copysign(std::hypot(g, 1.0), g));
  double sine = 1, cosine = 1, shift = 0;
  for (int64_t i = last; i-- > first;) {
    const double f = sine * e[i], b = cosine * e[i], length = std::hypot(f, g);
    e[i + 1] = length;
    if (length == 0) {  // the matrix falls in two here
      d[i + 1] -= shift;
      e[last] = 0;
      return;
    }
    sine = f / length;
    cosine = g / length;
    g = d[i + 1] - shift;
    const double r = (d[i] - g) * sine + 2 * cosine * b;
    shift = sine * r;
    d[i + 1] = g + shift;
    g = cosine * r - b;
    rotate(vectors.column(i), vectors.column(i + 1), cosine, sine, vectors.rows());
  }
  d[first] -= shift;
  e[first] = g;
  e[last] = 0;
}

}  // namespace

Matrix product(const Matrix& a, const Matrix& b) {
  LUMEN_CHECK(a.columns() == b.rows());
  Matrix out(a.rows(), b.columns());
  for (int64_t c = 0; c < b.columns(); ++c)
    for (int64_t k = 0; k < a.columns(); ++k) add_scaled(out.column(c), b.at(k, c), a.column(k), a.rows());
  return out;
}

Matrix orthonormal_basis(Matrix x) {
  const int64_t rows = x.rows(), columns = x.columns();
  LUMEN_CHECK(rows >= columns);
  Matrix out(rows, columns);
  std::vector<double> factors;
  for (int64_t k = 0; k < columns; ++k) {
    double* v = x.column(k) + k;
    factors.push_back(reflect(v, rows - k).factor);
    for (int64_t c = k + 1; c < columns; ++c) apply(factors.back(), v, x.column(c) + k, rows - k);
    out.at(k, k) = 1;
  }
  for (int64_t k = columns; k-- > 0;)
    for (int64_t c = k; c < columns; ++c) apply(factors[k], x.column(k) + k, out.column(c) + k, rows - k);
  return out;
}

Eigenvectors eigenvectors(Matrix symmetric) {
  const int64_t n = symmetric.rows();
  LUMEN_CHECK(n == symmetric.columns());
  std::vector<double> d(n), e(n);
  tridiagonalize(symmetric, d, e);
  constexpr double kEpsilon = std::numeric_limits<double>::epsilon();
  double largest = 0;
  for (int64_t i = 0; i < n; ++i) largest = std::max({largest, std::abs(d[i]), std::abs(e[i])});
  for (int64_t first = 0; first < n; ++first) {
    for (int step = 0;; ++step) {
      int64_t last = first;
      while (last + 1 < n &&
             std::abs(e[last]) > kEpsilon * std::max(std::abs(d[last]) + std::abs(d[last + 1]), kEpsilon * largest))
        ++last;
      if (last == first) break;
      LUMEN_CHECK(step < kMostSteps);
      ql_step(d, e, symmetric, first, last);
    }
  }
  return {std::move(d), std::move(symmetric)};
}

Singular largest_singular(const Matrix& a, int64_t rank) {
  const int64_t n = a.columns();
  LUMEN_CHECK(a.rows() >= n && rank >= 1 && rank <= n);
  Matrix squares(n, n);
  for (int64_t c = 0; c < n; ++c)
    for (int64_t r = c; r < n; ++r) squares.at(r, c) = dot(a.column(r), a.column(c), a.rows());
  const Eigenvectors all = eigenvectors(std::move(squares));
  std::vector<int64_t> order(n);
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](int64_t i, int64_t j) { return all.values[i] > all.values[j]; });
  Matrix right(n, rank);
  for (int64_t c = 0; c < rank; ++c) std::copy_n(all.vectors.column(order[c]), n, right.column(c));
  Matrix images = product(a, right);
  std::vector<double> values;
  for (int64_t c = 0; c < rank; ++c)
    values.push_back(std::sqrt(dot(images.column(c), images.column(c), images.rows())));
  return {std::move(values), std::move(right), std::move(images)};
}

}  // namespace lumen::model
