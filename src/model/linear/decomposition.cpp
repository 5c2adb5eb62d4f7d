#include "model/linear/decomposition.h"

#include <algorithm>
#include <cmath>
#include <span>
#include <vector>

#include "base/check.h"
#include "base/error.h"
#include "base/threads/team.h"
#include "graph/ir/build.h"
#include "graph/ir/eval.h"
#include "model/linear/matrix.h"
#include "run/device/require.h"

namespace lumen::model::linear {
namespace {

constexpr int64_t kQuick = 512;  // up to this many rows or columns, exact is quick
constexpr uint32_t kSalt = 0x51d0000;
constexpr int64_t kBeside = 8;  // dimensions of the subspace beyond the rank

// Row-major, as the engine stores tensors.
std::vector<float> rows_of(const Matrix& m) {
  std::vector<float> out(m.rows() * m.columns());
  for (int64_t r = 0; r < m.rows(); ++r)
    for (int64_t c = 0; c < m.columns(); ++c) out[r * m.columns() + c] = static_cast<float>(m.at(r, c));
  return out;
}

Matrix matrix_of(std::span<const float> rows, int64_t columns) {
  Matrix out(std::ssize(rows) / columns, columns);
  for (int64_t c = 0; c < columns; ++c)
    for (int64_t r = 0; r < out.rows(); ++r) out.at(r, c) = rows[r * columns + c];
  return out;
}

Matrix transposed(std::span<const float> rows, int64_t columns) {
  Matrix out(columns, std::ssize(rows) / columns);
  for (int64_t c = 0; c < out.columns(); ++c) std::copy_n(rows.data() + c * columns, columns, out.column(c));
  return out;
}

// W X, or W^T X, for matrices X of few columns.
class Products {
 public:
  Products(run::Engine& engine, const arch::Weight& w, int64_t columns) {
    weight_ = run::DeviceTensor::parameter(engine.device(), w.type, w.bytes.data(), w.bytes.keeper());
    for (const bool turned : {false, true}) {
      graph::Graph g;
      graph::Builder build(g);
      const graph::ValueId in_w = build.input("w", graph::Role::parameter, w.type);
      const graph::Type in = {{graph::Dim(turned ? w.rows() : w.columns()), graph::Dim(columns)}, {}};
      const graph::ValueId in_x = build.input("x", graph::Role::data, in);
      g.results = {turned ? build.contract(in_w, in_x, "nk", "nr", "kr")
                          : build.contract(in_w, in_x, "nk", "kr", "nr")};
      g.result_names = {arch::kResult};
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
    const std::vector<float> in = rows_of(x);
    side.x->upload(in.data(), side.x->bytes());
    side.program->run();
    const run::DeviceTensorRef result = side.program->result(arch::kResult);
    const graph::Shape& shape = result->type().shape;
    std::vector<float> out(shape[0].number() * shape[1].number());
    result->download(out.data(), result->bytes());
    return matrix_of(out, shape[1].number());
  }

  run::DeviceTensorRef weight_;
  Side sides_[2];
};

Matrix random_matrix(const arch::Weight& w, int64_t columns, uint32_t seed) {
  Matrix out(w.columns(), columns);
  for (int64_t r = 0; r < out.rows(); ++r)
    for (int64_t c = 0; c < columns; ++c) out.at(r, c) = 2.0 * graph::uniform_random(seed, kSalt, r * columns + c) - 1;
  return out;
}

// left right^T
LowRankPair pair_of(const Matrix& left, const Matrix& right) {
  const auto n = graph::Dim(left.rows()), k = graph::Dim(right.rows()), rank = graph::Dim(left.columns());
  const std::vector<float> turned(right.column(0), right.column(0) + right.rows() * right.columns());
  return {arch::f32_weight({n, rank}, rows_of(left)), arch::f32_weight({rank, k}, turned)};
}

// Multiplies right vectors and their images so that each has the root of singular value / scale as its norm.
void share(Singular& found, double scale) {
  for (int64_t i = 0; i < std::ssize(found.values); ++i) {
    const double value = found.values[i], root = std::sqrt(value / scale);
    for (int64_t r = 0; r < found.right.rows(); ++r) found.right.at(r, i) *= root;
    for (int64_t r = 0; r < found.images.rows(); ++r) found.images.at(r, i) *= value > 0 ? root / value : 0;
  }
}

// a^T b
Matrix turned_product(const Matrix& a, const Matrix& b) {
  Matrix out(a.columns(), b.columns());
  parallel_for(0, b.columns(), [&](int64_t c) {
    for (int64_t r = 0; r < a.columns(); ++r) {
      double sum = 0;
#pragma omp simd reduction(+ : sum)
      for (int64_t i = 0; i < a.rows(); ++i) sum += a.column(r)[i] * b.column(c)[i];
      out.at(r, c) = sum;
    }
  });
  return out;
}

// Eigenvectors of the `rank` largest eigenvalues, descending.
Matrix leading_eigenvectors(Matrix symmetric, int64_t rank) {
  const Eigenvectors all = eigenvectors(std::move(symmetric));
  Matrix out(all.vectors.rows(), rank);
  for (int64_t c = 0; c < rank; ++c)
    std::copy_n(all.vectors.column(all.vectors.columns() - 1 - c), out.rows(), out.column(c));
  return out;
}

// R with R R^T = H; negative eigenvalues, due to rounding, count as 0.
Matrix root_of(const Matrix& h) {
  Eigenvectors all = eigenvectors(h);
  for (int64_t c = 0; c < h.columns(); ++c) {
    const double root = std::sqrt(std::max(all.values[c], 0.0));
    for (int64_t r = 0; r < h.rows(); ++r) all.vectors.at(r, c) *= root;
  }
  return std::move(all.vectors);
}

// basis (W^T basis)^T, with the second factor's norms split between both factors.
LowRankPair pair_of_span(Matrix basis, Matrix inside) {
  for (int64_t c = 0; c < inside.columns(); ++c) {
    double squares = 0;
    for (int64_t r = 0; r < inside.rows(); ++r) squares += inside.at(r, c) * inside.at(r, c);
    const double root = std::sqrt(std::sqrt(squares));
    for (int64_t r = 0; r < basis.rows(); ++r) basis.at(r, c) *= root;
    for (int64_t r = 0; r < inside.rows(); ++r) inside.at(r, c) *= root > 0 ? 1 / root : 0;
  }
  return pair_of(basis, inside);
}

void require_finite(const arch::Weight& w) {
  if (!std::all_of(w.f32().begin(), w.f32().end(), [](float x) { return std::isfinite(x); }))
    throw user_error("a weight [{}, {}] to decompose has values that are not finite", w.rows(), w.columns());
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
  // The matrix, its gram and the gram's eigenvectors; then the pair, in doubles and in floats.
  if (is_exact(narrow, options))
    return saturating_sum(
        numbers(1, rows, columns),
        saturating_sum(numbers(2, narrow, narrow), numbers(2, saturating_sum(rows, columns), options.rank)));
  return numbers(5, saturating_sum(rows, columns), options.rank + kBeside);
}

LowRankPair decompose(run::Engine& engine, const arch::Weight& w, double scale, const DecompositionOptions& options) {
  const int64_t narrow = std::min(w.rows(), w.columns());
  LUMEN_CHECK(w.is_f32() && w.type.shape.size() == 2 && options.rank >= 1 && options.rank <= narrow && scale > 0);
  const int64_t columns = options.rank + kBeside;
  require_finite(w);
  if (is_exact(narrow, options)) {
    const bool is_wide = w.rows() < w.columns();
    Singular found =
        largest_singular(is_wide ? transposed(w.f32(), w.columns()) : matrix_of(w.f32(), w.columns()), options.rank);
    share(found, scale);
    return is_wide ? pair_of(found.right, found.images) : pair_of(found.images, found.right);
  }
  Products products(engine, w, columns);
  Matrix basis = orthonormal_basis(products.times(random_matrix(w, columns, options.seed)));
  for (int64_t i = 0; i < std::abs(options.iterations); ++i) {
    const Matrix other = orthonormal_basis(products.turned_times(basis));
    basis = orthonormal_basis(products.times(other));
  }
  // W ~ basis (basis^T W), with a narrow second factor.
  Singular found = largest_singular(products.turned_times(basis), options.rank);
  share(found, scale);
  return pair_of(product(basis, found.right), found.images);
}

LowRankPair decompose_weighted(run::Engine& engine, const arch::Weight& w, const arch::Weight& h,
                               const DecompositionOptions& options) {
  const int64_t rows = w.rows(), columns = w.columns(), narrow = std::min(rows, columns), rank = options.rank;
  LUMEN_CHECK(w.is_f32() && w.type.shape.size() == 2 && rank >= 1 && rank <= narrow);
  LUMEN_CHECK(h.is_f32() && h.rows() == columns && h.columns() == columns);
  require_finite(w);
  require_finite(h);
  if (is_exact(narrow, options) && rows <= columns) {
    const Matrix turned = transposed(w.f32(), columns);
    Matrix basis = leading_eigenvectors(turned_product(turned, Products(engine, h, rows).times(turned)), rank);
    Matrix inside = product(turned, basis);
    return pair_of_span(std::move(basis), std::move(inside));
  }
  if (is_exact(narrow, options)) {
    const Matrix root = root_of(matrix_of(h.f32(), columns));
    Matrix basis = orthonormal_basis(largest_singular(Products(engine, w, columns).times(root), rank).images);
    Matrix inside = Products(engine, w, rank).turned_times(basis);
    return pair_of_span(std::move(basis), std::move(inside));
  }
  const int64_t wide = rank + kBeside;
  Products products(engine, w, wide), weights(engine, h, wide);
  Matrix basis = orthonormal_basis(products.times(weights.times(random_matrix(w, wide, options.seed))));
  for (int64_t i = 0; i < std::abs(options.iterations); ++i)
    basis = orthonormal_basis(products.times(weights.times(products.turned_times(basis))));
  const Matrix inside = products.turned_times(basis);
  const Matrix found = leading_eigenvectors(turned_product(inside, weights.times(inside)), rank);
  return pair_of_span(product(basis, found), product(inside, found));
}

}  // namespace lumen::model::linear
