// Materialised permutes whose last axis is strided in memory: squares of lanes x lanes are transposed in registers, so
// that both reads and writes are whole vectors. Proved by tests/kernel/synth/synth_move_test.cpp.

#include <algorithm>

#include "base/check.h"
#include "kernel/synth/body/nest.h"
#include "kernel/synth/map/map.h"
#include "kernel/synth/order/transpose.h"

namespace lumen::synth {

namespace {
constexpr int64_t kGrain = 16384;  // elements per task
}

std::optional<Synthesis> synthesize_transpose(const graph::Plan& plan, const graph::Group& group, graph::ValueId load,
                                              graph::ValueId result, const machine::Machine& target) {
  const graph::Graph& g = plan.graph;
  const Access from = follow(plan, group, load);
  const bool in_memory = graph::reads_memory(group, from.source);
  const Scalar s = g[load].type.element.scalar;
  if (!in_memory || g[from.source].type.element.format || scalar_bytes(s) != 4) return std::nullopt;
  const std::vector<int64_t> shape = extents_of(g[load].type.shape);
  const Collapsed c = collapse(shape, {from.strides, dense_strides_of(shape)}, {});
  const int last = c.extents.size() - 1;
  int near = -1;  // the axis that is contiguous in the source
  for (int d = 0; d < last; ++d)
    if (c.strides[0][d] == 1) near = d;
  const int lanes = target.f32_lanes();
  if (near < 0 || c.strides[0][last] == 1 || c.extents[near] < lanes || c.extents[last] < lanes) return std::nullopt;

  StepBuilder builder(g);
  Builder& b = builder.b;
  const BufferId in = builder.value(from.source, false), out = builder.value(result, true);
  std::vector<int> others;
  std::vector<int64_t> outer;
  for (int d = 0; d < last; ++d) {
    if (d == near) continue;
    others.push_back(d);
    outer.push_back(c.extents[d]);
  }
  const int64_t near_extent = c.extents[near], far_extent = c.extents[last];
  const int64_t near_in = 4, far_in = c.strides[0][last] * 4, near_out = c.strides[1][near] * 4, far_out = 4;
  const Tasks tasks =
      cut(outer, near_extent, std::max<int64_t>(target.grain(kGrain) / far_extent / lanes * lanes, lanes), lanes);
  const auto nothing = [] {};
  for_tasks(b, tasks, outer, near_extent, nothing, [&](const std::vector<Expr>& counters, Expr first, Expr end) {
    Expr read = b.i64(from.offset * 4), write = b.i64(0);
    for (size_t k = 0; k < others.size(); ++k) {
      read = read + counters[k] * (c.strides[0][others[k]] * 4);
      write = write + counters[k] * (c.strides[1][others[k]] * 4);
    }
    const auto one = [&](Expr i, Expr j) {
      const Expr x = b.load(in, {s, 1}, read + (i * near_in + j * far_in), 4);
      b.store(out, x, write + (i * near_out + j * far_out), 4);
    };
    const int64_t whole_far = far_extent / lanes * lanes;
    const Expr length = end - first;
    const Expr whole = end - length % lanes;
    b.loop(LoopKind::serial, first, whole, lanes, [&](Expr i) {
      b.count(0, whole_far, lanes, [&](Expr j) {
        const Expr corner = read + (i * near_in + j * far_in);
        std::vector<Expr> tile;
        for (int k = 0; k < lanes; ++k) tile.push_back(b.load(in, {s, lanes}, corner + k * far_in, 4));
        transpose(b, tile);
        const Expr to = write + (i * near_out + j * far_out);
        for (int k = 0; k < lanes; ++k) b.store(out, tile[k], to + k * near_out, 4);
      });
      if (whole_far < far_extent)
        b.loop(LoopKind::serial, i, i + lanes, 1,
               [&](Expr row) { b.count(whole_far, far_extent, 1, [&](Expr j) { one(row, j); }); });
    });
    b.loop(LoopKind::serial, whole, end, 1, [&](Expr i) { b.count(0, far_extent, 1, [&](Expr j) { one(i, j); }); });
  });
  Synthesis made;
  made.steps.push_back(builder.finish(fmt::format("turn {} x{}", shape_text(shape), lanes), 0, 8.0 * product(shape)));
  return made;
}

}  // namespace lumen::synth
