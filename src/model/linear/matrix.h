// Dense linear algebra in double, for decompositions: orthonormal bases, eigenvectors of symmetric matrices and the
// largest singular values, by Eigen on one thread, so that bits do not depend on the number of threads. Proved by
// tests/model/linear/matrix_test.cpp.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace lumen::model::linear {

// Column-major.
class Matrix {
 public:
  Matrix(int64_t rows, int64_t columns) : rows_(rows), columns_(columns), data_(rows * columns) {}
  int64_t rows() const { return rows_; }
  int64_t columns() const { return columns_; }
  double* column(int64_t c) { return data_.data() + c * rows_; }
  const double* column(int64_t c) const { return data_.data() + c * rows_; }
  double& at(int64_t r, int64_t c) { return column(c)[r]; }
  double at(int64_t r, int64_t c) const { return column(c)[r]; }

 private:
  int64_t rows_, columns_;
  std::vector<double> data_;
};

// a b for a [M, K] and b [K, N].
Matrix product(const Matrix& a, const Matrix& b);

// Orthonormal columns with the span of the columns of x [M, N], M >= N, by Householder reflections.
Matrix orthonormal_basis(Matrix x);

// Eigenvalues of a symmetric matrix [N, N], ascending, and the orthonormal eigenvectors, one a column. Only the lower
// triangle is read. Squares of values must neither vanish nor overflow: those of products of floats do not.
struct Eigenvectors {
  std::vector<double> values;
  Matrix vectors;
};
Eigenvectors eigenvectors(Matrix symmetric);

// The `rank` largest singular values of a [M, N], M >= N, descending: a v = value u.
struct Singular {
  std::vector<double> values;
  Matrix right;   // [N, rank]: the v, orthonormal
  Matrix images;  // [M, rank]: the a v
};
// From the eigenvectors of a^T a. The remainder a - images right^T has the norm of the next singular value, up to
// sqrt(epsilon of double) times the largest value: below the precision of the decomposed floats.
Singular largest_singular(const Matrix& a, int64_t rank);

}  // namespace lumen::model::linear
