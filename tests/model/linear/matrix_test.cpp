// needs: none. Dense linear algebra: bases are orthonormal and span the same, eigenvectors and singular values meet
// their equations, also where values repeat, vanish or differ by many powers of ten.
#include "model/linear/matrix.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>

namespace lumen::model::linear {
namespace {

Matrix random_values(int64_t rows, int64_t columns, uint32_t seed) {
  std::mt19937 chance(seed);
  Matrix out(rows, columns);
  for (int64_t c = 0; c < columns; ++c)
    for (int64_t r = 0; r < rows; ++r) out.at(r, c) = static_cast<double>(chance()) / 2147483648.0 - 1;
  return out;
}

Matrix turned(const Matrix& m) {
  Matrix out(m.columns(), m.rows());
  for (int64_t c = 0; c < m.columns(); ++c)
    for (int64_t r = 0; r < m.rows(); ++r) out.at(c, r) = m.at(r, c);
  return out;
}

// b with its columns times the values.
Matrix scaled(Matrix b, const std::vector<double>& values) {
  for (int64_t c = 0; c < b.columns(); ++c)
    for (int64_t r = 0; r < b.rows(); ++r) b.at(r, c) *= values[static_cast<size_t>(c)];
  return b;
}

double difference(const Matrix& a, const Matrix& b) {
  double most = 0;
  for (int64_t c = 0; c < a.columns(); ++c)
    for (int64_t r = 0; r < a.rows(); ++r) most = std::max(most, std::abs(a.at(r, c) - b.at(r, c)));
  return most;
}

double from_orthonormal(const Matrix& m) {
  Matrix one(m.columns(), m.columns());
  for (int64_t i = 0; i < m.columns(); ++i) one.at(i, i) = 1;
  return difference(product(turned(m), m), one);
}

TEST(Matrix, BasesAreOrthonormalAndSpanTheSame) {
  for (const auto& [rows, columns] : {std::pair(1, 1), {5, 5}, {40, 7}}) {
    Matrix x = random_values(rows, columns, 3);
    if (columns == 7) std::copy_n(x.column(0), rows, x.column(4));  // one direction less
    const Matrix basis = orthonormal_basis(x);
    EXPECT_LT(from_orthonormal(basis), 1e-14);
    EXPECT_LT(difference(product(basis, product(turned(basis), x)), x), 1e-14);
  }
  EXPECT_LT(from_orthonormal(orthonormal_basis(Matrix(6, 3))), 1e-15);  // of nothing
}

// Values of every kind, made with known eigenvectors.
TEST(Matrix, EigenvectorsMeetTheirEquation) {
  const std::vector<std::vector<double>> spectra = {
      {2}, {3, -1}, {1, 1, 1, 1}, {0, 0, 0}, {5, 5, 0, 0, -5, 1e-9, 1e9}, {1e-90, 1e-95, 3e-90}};
  for (const std::vector<double>& values : spectra) {
    const auto n = static_cast<int64_t>(values.size());
    const Matrix q = orthonormal_basis(random_values(n, n, 7));
    const Matrix a = product(scaled(q, values), turned(q));
    const Eigenvectors found = eigenvectors(a);
    EXPECT_LT(from_orthonormal(found.vectors), 1e-13);
    const double largest = std::abs(
        *std::max_element(values.begin(), values.end(), [](double x, double y) { return std::abs(x) < std::abs(y); }));
    EXPECT_LE(difference(product(a, found.vectors), scaled(found.vectors, found.values)), 1e-14 * largest);
    std::vector<double> sorted = values, other = found.values;
    std::sort(sorted.begin(), sorted.end());
    std::sort(other.begin(), other.end());
    for (size_t i = 0; i < values.size(); ++i) EXPECT_NEAR(other[i], sorted[i], 1e-14 * largest);
  }
  const Matrix x = random_values(150, 150, 9);
  const Matrix a = product(turned(x), x);
  const Eigenvectors found = eigenvectors(a);
  EXPECT_LT(from_orthonormal(found.vectors), 1e-12);
  EXPECT_LT(difference(product(a, found.vectors), scaled(found.vectors, found.values)), 1e-11);
}

TEST(Matrix, LargestSingularValuesAreThoseItWasMadeOf) {
  const std::vector<double> values = {1000, 4, 4, 1, 1e-3, 1e-6, 0, 0};
  const Matrix left = orthonormal_basis(random_values(30, 8, 1)), right = orthonormal_basis(random_values(8, 8, 2));
  const Matrix a = product(scaled(left, values), turned(right));
  for (const int64_t rank : {1, 3, 6, 8}) {
    const Singular found = largest_singular(a, rank);
    EXPECT_LT(from_orthonormal(found.right), 1e-13);
    for (int64_t i = 0; i < rank; ++i)
      EXPECT_NEAR(found.values[static_cast<size_t>(i)], values[static_cast<size_t>(i)], 1e-8 * values[0]) << i;
    // Nothing of the same rank is closer.
    std::vector<double> kept = values;
    std::fill(kept.begin() + rank, kept.end(), 0);
    EXPECT_LT(difference(product(found.images, turned(found.right)), product(scaled(left, kept), turned(right))), 1e-5);
  }
}

}  // namespace
}  // namespace lumen::model::linear
