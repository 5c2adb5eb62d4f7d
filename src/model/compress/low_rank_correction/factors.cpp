#include "model/compress/low_rank_correction/factors.h"

#include <algorithm>
#include <cmath>

#include "base/check.h"
#include "base/threads/team.h"
#include "model/compress/round/output_error.h"

namespace lumen::model::compress {
namespace {

double squares(const arch::Weight& w) {
  double sum = 0;
  for (const float v : w.f32()) sum += double{v} * v;
  return sum;
}

arch::Weight difference(const arch::Weight& w, std::span<const float> less) {
  std::vector<float> out(w.f32().begin(), w.f32().end());
  for (size_t i = 0; i < out.size(); ++i) out[i] -= less[i];
  return arch::f32_weight(w.type.shape, out);
}

std::vector<float> sum_of(const arch::Weight& rounded, const linear::LowRankPair& pair) {
  std::vector<float> out(rounded.f32().begin(), rounded.f32().end());
  const int64_t rows = rounded.rows(), columns = rounded.columns(), rank = pair.right.rows();
  const std::span<const float> b = pair.left.f32(), a = pair.right.f32();
  parallel_for(0, rows, [&](int64_t r) {
    for (int64_t i = 0; i < rank; ++i)
      for (int64_t c = 0; c < columns; ++c) out[r * columns + c] += b[r * rank + i] * a[i * columns + c];
  });
  return out;
}

}  // namespace

arch::Weight damped(const arch::Weight& gram, double part) {
  const int64_t columns = gram.columns();
  std::vector<float> out(gram.f32().begin(), gram.f32().end());
  double mean = 0;
  for (int64_t c = 0; c < columns; ++c) mean += double{out[c * columns + c]} / columns;
  for (int64_t c = 0; c < columns; ++c) out[c * columns + c] += part * mean;
  return arch::f32_weight(gram.type.shape, out);
}

Factors factors_of(run::Engine& engine, const arch::Weight& w, const arch::Weight& rounded, const arch::Weight* gram,
                   const FactorOptions& options) {
  LUMEN_CHECK(w.is_f32() && rounded.is_f32() && w.type.shape == rounded.type.shape && w.type.shape.size() == 2);
  LUMEN_CHECK(options.rank >= 1 && options.damping >= 0);
  const arch::Weight lost = difference(w, rounded.f32());
  linear::DecompositionOptions how;
  how.rank = std::min({options.rank, w.rows(), w.columns()});
  how.seed = options.seed;
  Factors out;
  out.pair =
      gram ? decompose_weighted(engine, lost, damped(*gram, options.damping), how) : decompose(engine, lost, 1, how);
  out.values = sum_of(rounded, out.pair);
  const arch::Weight left = difference(w, out.values);
  const double size = squares(w);
  if (size > 0) out.before.weights = std::sqrt(squares(lost) / size);
  if (size > 0) out.after.weights = std::sqrt(squares(left) / size);
  if (!gram) return out;
  OutputErrors errors(engine);
  const run::DeviceTensorRef kept = errors.keep(gram->f32(), gram->columns());
  const auto energy = [&](const arch::Weight& e) {
    double sum = 0;
    for (const double of_row : errors.of(e.f32(), e.rows(), e.columns(), kept)) sum += of_row;
    return std::max(sum, 0.0);
  };
  const double seen = energy(w);
  if (seen > 0) out.before.outputs = std::sqrt(energy(lost) / seen);
  if (seen > 0) out.after.outputs = std::sqrt(energy(left) / seen);
  return out;
}

}  // namespace lumen::model::compress
