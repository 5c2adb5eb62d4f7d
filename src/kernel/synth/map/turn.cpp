// Materialised permutes whose last axis is strided in memory: squares of lanes x lanes are transposed in registers, so
// that both reads and writes are whole vectors. Proved by tests/kernel/synth/synth_move_test.cpp.

#include <algorithm>
#include <numeric>

#include "base/check.h"
#include "kernel/synth/body/nest.h"
#include "kernel/synth/map/map.h"
#include "kernel/synth/order/transpose.h"

namespace lumen::synth {

namespace {

constexpr int64_t kGrain = 16384;  // elements per task
constexpr int64_t kLine = 64;      // bytes that are read together

struct Turn {
  Collapsed axes;  // strides of the source and of the result, in elements
  int near = -1;   // the axis that is contiguous in the source
};

std::optional<Turn> find_turn(const Access& from, const std::vector<int64_t>& shape, int lanes) {
  Turn t{collapse(shape, {from.strides, dense_strides_of(shape)}, {})};
  const int last = t.axes.extents.size() - 1;
  for (int d = 0; d < last; ++d)
    if (t.axes.strides[0][d] == 1) t.near = d;
  if (lanes < 2 || t.near < 0 || t.axes.strides[0][last] == 1) return std::nullopt;
  if (t.axes.extents[t.near] < lanes || t.axes.extents[last] < lanes) return std::nullopt;
  return t;
}

}  // namespace

bool write_transposed_by_threads(Builder& b, BufferId in, BufferId out, const TransposedCopy& copy) {
  constexpr int kLoad = 16;
  constexpr int64_t kNear = 8, kFar = 4;  // adjacent threads, in either direction
  const int bytes = scalar_bytes(copy.source), n = kLoad / bytes;
  const std::optional<Turn> turn = find_turn(copy.from, copy.shape, n);
  if (!turn || copy.source != copy.result || copy.from.offset % n != 0) return false;
  const Collapsed& c = turn->axes;
  const int last = c.extents.size() - 1, near = turn->near;
  if (c.extents[near] % n != 0 || c.extents[last] % n != 0) return false;
  for (int d = 0; d <= last; ++d)
    if ((d != near && c.strides[0][d] % n != 0) || (d != last && c.strides[1][d] % n != 0)) return false;
  b.loop(LoopKind::parallel, b.i64(0), b.i64(product(copy.shape) / (n * n)), 1, [&](Expr task) {
    Expr rest = task, source = b.i64(copy.from.offset), target = b.i64(0);
    const auto walk = [&](int axis, int64_t extent, int64_t elements) {
      const Expr x = rest % extent;
      rest = rest / extent;
      source = source + x * (c.strides[0][axis] * elements);
      target = target + x * (c.strides[1][axis] * elements);
    };
    const int64_t near_squares = c.extents[near] / n, far_squares = c.extents[last] / n;
    const int64_t beside_near = std::gcd(near_squares, kNear), beside_far = std::gcd(far_squares, kFar);
    walk(near, beside_near, n);
    walk(last, beside_far, n);
    walk(near, near_squares / beside_near, n * beside_near);
    walk(last, far_squares / beside_far, n * beside_far);
    for (int d = last; d-- > 0;)
      if (d != near) walk(d, c.extents[d], 1);
    const VType run{copy.source, n};
    std::vector<Expr> square;
    for (int64_t k = 0; k < n; ++k) square.push_back(b.load(in, run, (source + k * c.strides[0][last]) * bytes, kLoad));
    transpose(b, square);
    for (int64_t k = 0; k < n; ++k) b.store(out, square[k], (target + k * c.strides[1][near]) * bytes, kLoad);
  });
  return true;
}

bool write_transposed(Builder& b, BufferId in, BufferId out, const TransposedCopy& copy,
                      const machine::Machine& target) {
  if (target.wave > 1 && write_transposed_by_threads(b, in, out, copy)) return true;
  const int lanes = target.f32_lanes();
  const std::optional<Turn> turn = find_turn(copy.from, copy.shape, lanes);
  if (!turn) return false;
  const Collapsed& c = turn->axes;
  const int last = c.extents.size() - 1, near = turn->near;
  std::vector<int> others;
  std::vector<int64_t> outer;
  for (int d = 0; d < last; ++d) {
    if (d == near) continue;
    others.push_back(d);
    outer.push_back(c.extents[d]);
  }
  const int64_t in_bytes = scalar_bytes(copy.source), out_bytes = scalar_bytes(copy.result);
  const int64_t near_extent = c.extents[near], far_extent = c.extents[last];
  const int64_t near_in = in_bytes, far_in = c.strides[0][last] * in_bytes;
  const int64_t near_out = c.strides[1][near] * out_bytes, far_out = out_bytes;
  // Enough columns at once that cache lines are read once; threads of a GPU read them together anyway.
  const int64_t line = target.wave > 1 ? lanes : kLine / in_bytes;
  const int64_t strip = std::max<int64_t>(lanes, std::min(near_extent, line) / lanes * lanes);
  const Tasks tasks =
      cut(outer, near_extent, std::max<int64_t>(target.grain(kGrain) / far_extent / strip * strip, strip), strip);
  const auto read = [&](int n, Expr at) { return cast(b.load(in, {copy.source, n}, at, in_bytes), copy.result); };
  const auto nothing = [] {};
  for_tasks(b, tasks, outer, near_extent, nothing, [&](const std::vector<Expr>& counters, Expr first, Expr end) {
    Expr source = b.i64(copy.from.offset * in_bytes), target_at = b.i64(0);
    for (size_t k = 0; k < others.size(); ++k) {
      source = source + counters[k] * (c.strides[0][others[k]] * in_bytes);
      target_at = target_at + counters[k] * (c.strides[1][others[k]] * out_bytes);
    }
    const auto one = [&](Expr i, Expr j) {
      b.store(out, read(1, source + (i * near_in + j * far_in)), target_at + (i * near_out + j * far_out), out_bytes);
    };
    const auto square = [&](Expr i, Expr j) {
      const Expr corner = source + (i * near_in + j * far_in);
      std::vector<Expr> tile;
      for (int k = 0; k < lanes; ++k) tile.push_back(read(lanes, corner + k * far_in));
      transpose(b, tile);
      const Expr to = target_at + (i * near_out + j * far_out);
      for (int k = 0; k < lanes; ++k) b.store(out, tile[k], to + k * near_out, out_bytes);
    };
    const int64_t whole_far = far_extent / lanes * lanes;
    const auto strips = [&](Expr from, Expr to, int64_t width) {
      b.loop(LoopKind::serial, from, to, width, [&](Expr i) {
        b.count(0, whole_far, lanes, [&](Expr j) {
          if (width == lanes) return square(i, j);
          b.loop(LoopKind::serial, i, i + width, lanes, [&](Expr part) { square(part, j); });
        });
        if (whole_far < far_extent)
          b.loop(LoopKind::serial, i, i + width, 1,
                 [&](Expr row) { b.count(whole_far, far_extent, 1, [&](Expr j) { one(row, j); }); });
      });
    };
    const Expr length = end - first;
    const Expr whole = end - length % lanes;
    if (strip == lanes) {
      strips(first, whole, lanes);
    } else {
      const Expr wide = end - length % strip;
      strips(first, wide, strip);
      strips(wide, whole, lanes);
    }
    b.loop(LoopKind::serial, whole, end, 1, [&](Expr i) { b.count(0, far_extent, 1, [&](Expr j) { one(i, j); }); });
  });
  return true;
}

std::optional<Synthesis> synthesize_transpose(const graph::Plan& plan, const graph::Group& group, graph::ValueId load,
                                              graph::ValueId result, const machine::Machine& target) {
  const graph::Graph& g = plan.graph;
  const Access from = follow(plan, group, load);
  const bool in_memory = graph::reads_memory(group, from.source);
  const Scalar s = g[load].type.element.scalar;
  if (!in_memory || g[from.source].type.element.format || scalar_bytes(s) != 4) return std::nullopt;
  const std::vector<int64_t> shape = extents_of(g[load].type.shape);
  StepBuilder builder(g);
  const BufferId in = builder.value(from.source, false), out = builder.value(result, true);
  if (!write_transposed(builder.b, in, out, {from, shape, s, s}, target)) return std::nullopt;
  Synthesis made;
  made.steps.push_back(
      builder.finish(fmt::format("turn {} x{}", shape_text(shape), target.f32_lanes()), 0, 8.0 * product(shape)));
  return made;
}

}  // namespace lumen::synth
