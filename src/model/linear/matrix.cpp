#include "model/linear/matrix.h"

#include <algorithm>
#include <cmath>
#include <numeric>

// One thread, so that sums have one order.
#define EIGEN_DONT_PARALLELIZE
#include <Eigen/Dense>

#include "base/check.h"

namespace lumen::model::linear {
namespace {

using Dense = Eigen::Map<Eigen::MatrixXd>;
using ConstDense = Eigen::Map<const Eigen::MatrixXd>;

Dense dense(Matrix& m) {
  return {m.column(0), m.rows(), m.columns()};
}
ConstDense dense(const Matrix& m) {
  return {m.column(0), m.rows(), m.columns()};
}

}  // namespace

Matrix product(const Matrix& a, const Matrix& b) {
  LUMEN_CHECK(a.columns() == b.rows());
  Matrix out(a.rows(), b.columns());
  dense(out).noalias() = dense(a) * dense(b);
  return out;
}

Matrix orthonormal_basis(Matrix x) {
  LUMEN_CHECK(x.rows() >= x.columns());
  const Eigen::HouseholderQR<Eigen::MatrixXd> reflections(dense(x));
  Matrix out(x.rows(), x.columns());
  Dense q = dense(out);
  q.setIdentity();
  q.applyOnTheLeft(reflections.householderQ());
  return out;
}

Eigenvectors eigenvectors(Matrix symmetric) {
  LUMEN_CHECK(symmetric.rows() == symmetric.columns());
  const Eigen::SelfAdjointEigenSolver<Eigen::MatrixXd> found(dense(symmetric));
  LUMEN_CHECK(found.info() == Eigen::Success);
  dense(symmetric) = found.eigenvectors();
  const auto& values = found.eigenvalues();
  return {{values.begin(), values.end()}, std::move(symmetric)};
}

Singular largest_singular(const Matrix& a, int64_t rank) {
  const int64_t n = a.columns();
  LUMEN_CHECK(a.rows() >= n && rank >= 1 && rank <= n);
  Matrix squares(n, n);
  dense(squares).selfadjointView<Eigen::Lower>().rankUpdate(dense(a).transpose());
  const Eigenvectors all = eigenvectors(std::move(squares));  // ascending
  Matrix right(n, rank);
  dense(right) = dense(all.vectors).rightCols(rank).rowwise().reverse();
  Matrix images = product(a, right);
  std::vector<double> values(rank);
  for (int64_t c = 0; c < rank; ++c) values[c] = dense(images).col(c).norm();
  return {std::move(values), std::move(right), std::move(images)};
}

}  // namespace lumen::model::linear
