#include "model/compress/layers/branch.h"

#include <algorithm>
#include <optional>

#include "base/check.h"
#include "base/error.h"
#include "base/ordinal.h"
#include "base/threads/team.h"
#include "graph/transform/low_rank.h"
#include "model/arch/function.h"
#include "model/arch/low_rank_weights.h"
#include "model/calibrate/calibrate.h"
#include "model/compress/low_rank_correction/low_rank_correction.h"
#include "model/compress/quantize.h"

namespace lumen::model::compress {
namespace {

bool stays_float(const Format& f) {
  return arch::is_plain(f, Scalar::f32) || arch::is_plain(f, Scalar::f16) || arch::is_plain(f, Scalar::bf16);
}

void require_blocks(const arch::Parameter& p, int64_t rank, const Format& f) {
  for (const auto& [what, columns] : {std::pair("A", p.shape.back().number()), std::pair("B", rank)})
    if (columns % f.block != 0)
      throw Error(Exit::usage,
                  fmt::format("{} of the branch of '{}' has rows of {}, which do not divide into blocks of '{}'", what,
                              p.gguf, columns, f.name),
                  "choose another --low-rank, or another --low-rank-format");
}

// The column weighting of matrix m from its input statistics; nullopt where they are not known or not used.
std::optional<arch::Weight> weighing(const RoundingTask& task, int64_t m, BranchMethod method, double damping) {
  const graph::Shape shape{graph::Dim(task.columns), graph::Dim(task.columns)};
  if (method == BranchMethod::eora) {
    const std::span<const float> gram = task.gram(m);
    if (!gram.empty()) return damped(arch::f32_weight(shape, gram), damping);
  } else if (method == BranchMethod::lqer) {
    const std::vector<float> squares = task.squares(m);
    if (squares.empty()) return std::nullopt;
    std::vector<float> diagonal(task.columns * task.columns);
    for (int64_t c = 0; c < task.columns; ++c) diagonal[c * task.columns + c] = squares[c];
    return damped(arch::f32_weight(shape, diagonal), damping);
  }
  return std::nullopt;
}

arch::Weight held(run::Engine& engine, const FormatRef& format, const graph::Shape& shape,
                  std::span<const float> values) {
  arch::Weight out = arch::f32_weight(shape, values);
  if (!format) return out;
  out.bytes = engine.encode(format, values.data(), out.rows(), out.columns());
  out.type.element.format = format;
  return out;
}

}  // namespace

graph::TapKinds BranchOptions::observes() const {
  graph::TapKinds kinds;
  kinds.gram = are_wanted() && method == BranchMethod::eora;
  kinds.squares = are_wanted() && method == BranchMethod::lqer;
  return kinds;
}

const std::vector<std::string>& branch_methods() {
  static const std::vector<std::string> names{"svdquant", "eora", "lqer"};  // in the order of BranchMethod
  return names;
}

BranchMethod branch_method(const std::string& name) {
  for (const BranchMethod m : {BranchMethod::svdquant, BranchMethod::eora, BranchMethod::lqer})
    if (name_of(m) == name) return m;
  throw usage_error("unknown low-rank method '{}'; there are {}", name, fmt::join(branch_methods(), ", "));
}

const std::string& name_of(BranchMethod method) {
  return branch_methods()[ordinal(method)];
}

std::map<std::string, int64_t> branch_ranks(const arch::Model& model, const std::map<std::string, FormatRef>& formats,
                                            const BranchOptions& options) {
  std::map<std::string, int64_t> out;
  if (!options.are_wanted()) return out;
  if (model.metadata.has(arch::kLowRankWeights))
    throw user_error("'{}' already has low-rank branches: start from the model before it was quantized", model.name);
  const auto places = graph::low_rank_places(function_of(model, calibrate::watched_function(*model.family)));
  for (const auto& [name, format] : formats) {
    const arch::Parameter& p = *model.find(name);
    const auto place = places.find(name);
    const bool multiplied = place != places.end() && place->second.products && !place->second.rows;
    if (!multiplied || graph::layer_of(name) < 0 || p.gguf.empty() || stays_float(*format)) continue;
    const int64_t rank = std::min({options.rank, p.shape.back().number(), p.shape[p.shape.size() - 2].number()});
    if (options.format) require_blocks(p, rank, *options.format);
    out[name] = rank;
  }
  if (out.empty())
    throw user_error("'{}' has no quantized weight of a layer that could have a low-rank branch", model.name);
  return out;
}

void Branch::add(run::Engine& engine, float sign, std::span<float> to) const {
  const std::vector<float> left = values_of(engine, b), right = values_of(engine, a);
  const int64_t rank = b.columns(), columns = a.columns(), matrices = a.rows() / rank, rows = b.rows() / matrices;
  LUMEN_CHECK(std::ssize(to) == matrices * rows * columns);
  parallel_for(0, matrices * rows, [&](int64_t r) {
    for (int64_t i = 0; i < rank; ++i) {
      const float by = sign * left[r * rank + i];
      const float* const from = right.data() + (r / rows * rank + i) * columns;
      for (int64_t c = 0; c < columns; ++c) to[r * columns + c] += by * from[c];
    }
  });
}

Branch branch_of(run::Engine& engine, const RoundingTask& task, std::span<const float> values,
                 const graph::Shape& shape, int64_t rank, const BranchOptions& options, double damping, uint32_t seed) {
  LUMEN_CHECK(std::ssize(values) == task.all_rows() * task.columns && rank >= 1);
  const graph::Shape matrix{graph::Dim(task.rows), graph::Dim(task.columns)};
  linear::DecompositionOptions how;
  how.rank = rank;
  std::vector<float> a, b;
  for (int64_t m = 0; m < task.matrices; ++m) {
    how.seed = seed + m;
    const arch::Weight w =
        arch::f32_weight(matrix, values.subspan(m * task.rows * task.columns, task.rows * task.columns));
    const std::optional<arch::Weight> gram = weighing(task, m, options.method, damping);
    const linear::LowRankPair pair = gram ? decompose_weighted(engine, w, *gram, how) : decompose(engine, w, 1, how);
    a.insert(a.end(), pair.right.f32().begin(), pair.right.f32().end());
    b.insert(b.end(), pair.left.f32().begin(), pair.left.f32().end());
  }
  graph::Shape of_a = shape, of_b = shape;
  of_a[of_a.size() - 2] = of_b.back() = graph::Dim(rank);
  return {held(engine, options.format, of_a, a), held(engine, options.format, of_b, b)};
}

}  // namespace lumen::model::compress
