#include "model/train/rewrite/decomposition.h"

#define EIGEN_DONT_PARALLELIZE  // the same numbers at any number of threads
#define EIGEN_MPL2_ONLY
#include <Eigen/Householder>
#include <Eigen/QR>
#include <Eigen/SVD>
#include <algorithm>
#include <cmath>

#include "base/check.h"
#include "graph/ir/build.h"
#include "graph/ir/eval.h"
#include "run/device/require.h"

namespace lumen::model {
namespace {

using Matrix = Eigen::MatrixXd;
using Rows = Eigen::Matrix<float, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;

constexpr int64_t kQuick = 512;  // rows or columns of what is decomposed exactly
constexpr uint32_t kSalt = 0x51d0000;
constexpr int64_t kBeside = 8;  // dimensions of the subspace beyond the rank

Weight weight_of(const Matrix& m) {
  const Rows rows = m.cast<float>();
  return f32_weight({graph::Dim(rows.rows()), graph::Dim(rows.cols())},
                    {rows.data(), static_cast<size_t>(rows.size())});
}

Matrix matrix_of(const Weight& w) {
  return Eigen::Map<const Rows>(w.f32().data(), w.rows(), w.columns()).cast<double>();
}

// W X, or the transpose of W times X, for matrices X of few columns.
class Products {
 public:
  Products(run::Engine& engine, const Weight& w, int64_t columns) : engine_(engine) {
    weight_ = run::DeviceTensor::parameter(engine.device(), w.type, w.bytes.data(), w.bytes.keeper());
    for (const bool turned : {false, true}) {
      graph::Graph g;
      graph::Builder build(g);
      const graph::ValueId in_w = build.input("w", graph::Role::parameter, w.type);
      const graph::Type in = {{graph::Dim(turned ? w.rows() : w.columns()), graph::Dim(columns)}, {}};
      const graph::ValueId in_x = build.input("x", graph::Role::data, in);
      g.results = {turned ? build.contract(in_w, in_x, "nk", "nr", "kr")
                          : build.contract(in_w, in_x, "nk", "kr", "nr")};
      g.result_names = {kResult};
      run::CompileOptions options;
      options.exact = true;
      Side& side = sides_[turned ? 1 : 0];
      side.program = engine.compile(g, options);
      side.x = std::make_shared<run::DeviceTensor>(engine.device(), in);
      side.program->bind("w", weight_);
      side.program->bind("x", side.x);
    }
  }

  Matrix times(const Matrix& x) { return run(sides_[0], x); }
  Matrix turned_times(const Matrix& x) { return run(sides_[1], x); }

 private:
  struct Side {
    std::shared_ptr<run::Program> program;
    run::DeviceTensorRef x;
  };

  static Matrix run(Side& side, const Matrix& x) {
    const Rows in = x.cast<float>();
    side.x->upload(in.data(), side.x->bytes());
    side.program->run();
    const run::DeviceTensorRef result = side.program->result(kResult);
    const graph::Shape& shape = result->type().shape;
    Rows out(shape[0].number(), shape[1].number());
    result->download(out.data(), result->bytes());
    return out.cast<double>();
  }

  run::Engine& engine_;
  run::DeviceTensorRef weight_;
  Side sides_[2];
};

// Columns that are orthogonal and span the same.
Matrix basis_of(const Matrix& x) {
  const Eigen::HouseholderQR<Matrix> qr(x);
  return qr.householderQ() * Matrix::Identity(x.rows(), x.cols());
}

Matrix random_matrix(const Weight& w, int64_t columns, uint32_t seed) {
  Matrix out(w.columns(), columns);
  for (int64_t r = 0; r < out.rows(); ++r)
    for (int64_t c = 0; c < out.cols(); ++c) out(r, c) = 2.0 * graph::uniform_random(seed, kSalt, r * columns + c) - 1;
  return out;
}

LowRankPair cut(const Matrix& left, const Eigen::VectorXd& values, const Matrix& right, int64_t rank, double scale) {
  const Eigen::VectorXd roots = (values.head(rank) / scale).cwiseMax(0).cwiseSqrt();
  return {weight_of(left.leftCols(rank) * roots.asDiagonal()),
          weight_of(roots.asDiagonal() * right.leftCols(rank).transpose())};
}

bool is_exact(int64_t narrow, const DecompositionOptions& options) {
  return options.iterations == 0 || (options.iterations < 0 && narrow <= kQuick) || options.rank + kBeside >= narrow;
}

}  // namespace

int64_t decomposition_bytes(int64_t rows, int64_t columns, const DecompositionOptions& options) {
  using run::saturating_product, run::saturating_sum;
  const int64_t narrow = std::min(rows, columns);
  const auto numbers = [](int64_t times, int64_t a, int64_t b) {
    return saturating_product(times * sizeof(double), saturating_product(a, b));
  };
  // The matrix, Eigen's two copies of it and the factor of its size; then a block of reflections, the small factor and
  // work space.
  constexpr int64_t kBlock = 48;
  if (is_exact(narrow, options))
    return saturating_sum(numbers(4, rows, columns),
                          saturating_sum(numbers(1, std::max(rows, columns), kBlock), numbers(7, narrow, narrow)));
  return numbers(5, saturating_sum(rows, columns), options.rank + kBeside);
}

LowRankPair decompose(run::Engine& engine, const Weight& w, double scale, const DecompositionOptions& options) {
  const int64_t narrow = std::min(w.rows(), w.columns());
  LUMEN_CHECK(w.is_f32() && w.type.shape.size() == 2 && options.rank >= 1 && options.rank <= narrow && scale > 0);
  const int64_t columns = options.rank + kBeside;
  if (is_exact(narrow, options)) {
    const Eigen::BDCSVD<Matrix> svd(matrix_of(w), Eigen::ComputeThinU | Eigen::ComputeThinV);
    return cut(svd.matrixU(), svd.singularValues(), svd.matrixV(), options.rank, scale);
  }
  Products products(engine, w, columns);
  Matrix basis = basis_of(products.times(random_matrix(w, columns, options.seed)));
  for (int64_t i = 0; i < std::abs(options.iterations); ++i) {
    const Matrix other = basis_of(products.turned_times(basis));
    basis = basis_of(products.times(other));
  }
  // W ~ basis (basis^T W), whose second factor is narrow.
  const Matrix inner = products.turned_times(basis);
  const Eigen::BDCSVD<Matrix> svd(inner.transpose(), Eigen::ComputeThinU | Eigen::ComputeThinV);
  return cut(basis * svd.matrixU(), svd.singularValues(), svd.matrixV(), options.rank, scale);
}

}  // namespace lumen::model
