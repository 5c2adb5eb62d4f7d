// Plain copies that other kernels need: loads laid out in scratch, and records of one blob into another.
// Proved by tests/kernel/synth/synth_move_test.cpp.
#include <algorithm>
#include <numeric>

#include "base/check.h"
#include "base/error.h"
#include "kernel/synth/body/nest.h"
#include "kernel/synth/encode/encode.h"
#include "kernel/synth/map/map.h"

namespace lumen::synth {

using graph::Node;
using graph::Op;

namespace {
constexpr int64_t kGrain = 8192;

// bytes [from, from + count) of one buffer to another; `count` known.
void copy_bytes(Builder& b, BufferId source, Expr from, BufferId target, Expr to, int64_t count, int lanes) {
  const int64_t wide = int64_t{lanes} * 4, whole = count / wide * wide;
  b.count(0, whole, wide,
          [&](Expr at) { b.store(target, b.load(source, {Scalar::i32, lanes}, from + at, 1), to + at, 1); });
  if (whole < count)
    b.count(whole, count, 1,
            [&](Expr at) { b.store(target, b.load(source, {Scalar::u8, 1}, from + at, 1), to + at, 1); });
}
// A whole state, `part` bytes a task.
void copy_whole(Builder& b, BufferId source, BufferId target, int64_t bytes, int64_t part, int lanes) {
  b.loop(LoopKind::parallel, b.i64(0), b.i64((bytes + part - 1) / part), 1, [&](Expr task) {
    const Expr from = task * part;
    const auto copy = [&](int64_t count) { copy_bytes(b, source, from, target, from, count, lanes); };
    if (bytes % part == 0) return copy(part);
    b.branch(task == bytes / part, [&] { copy(bytes % part); }, [&] { copy(part); });
  });
}

// For loads whose last axis is strided in memory.
std::optional<Step> transposed_to_scratch(const graph::Plan& plan, const graph::Group& group, const Access& from,
                                          const std::vector<int64_t>& shape, int scratch, Scalar type,
                                          const machine::Machine& target) {
  if (!graph::reads_memory(group, from.source)) return std::nullopt;
  const graph::Element element = plan.graph[from.source].type.element;
  if (element.format || !is_float(element.scalar) || scalar_bytes(element.scalar) > 4) return std::nullopt;
  StepBuilder builder(plan.graph);
  const BufferId in = builder.value(from.source, false),
                 out = builder.scratch(scratch, product(shape) * scalar_bytes(type), true);
  const TransposedCopy copy{from, shape, element.scalar, type};
  const bool written = target.wave > 1 ? write_transposed_by_threads(builder.b, in, out, copy)
                                       : write_transposed(builder.b, in, out, copy, target);
  if (!written) return std::nullopt;
  return builder.finish(fmt::format("turn {} x{}", shape_text(shape), target.f32_lanes()), 0,
                        (0.0 + scalar_bytes(type) + scalar_bytes(element.scalar)) * product(shape));
}

}  // namespace

Step copy_to_scratch(const graph::Plan& plan, const graph::Group& group, graph::ValueId v, int scratch,
                     const machine::Machine& target, Scalar type) {
  const std::vector<int64_t> shape = extents_of(plan.graph[v].type.shape);
  const Access from = follow(plan, group, v);
  if (auto transposed = transposed_to_scratch(plan, group, from, shape, scratch, type, target))
    return *std::move(transposed);
  const Access to{v, 0, own_strides_of(shape)};
  StepBuilder builder(plan.graph);
  Builder& b = builder.b;
  for (const graph::ValueId input : group.inputs) builder.value(input, false);
  const BufferId buffer = builder.scratch(scratch, product(shape) * scalar_bytes(type), true);
  Body body(builder, plan, group, shape, {}, {{v, from}}, {{v, to}});
  const int lanes = target.f32_lanes();
  std::vector<int64_t> outer = body.extents();
  const int64_t inner = outer.back();
  outer.pop_back();
  const Tasks tasks =
      cut(outer, inner, target.grain(kGrain), std::lcm<int64_t>(body.chunking(lanes).chunk, int64_t{lanes} * 4));
  for_tasks(
      b, tasks, outer, inner, [&] { body.begin_task(); },
      [&](const std::vector<Expr>& counters, Expr first, Expr end) {
        for (size_t d = 0; d < counters.size(); ++d) body.open(d, counters[d]);
        for_lanes(b, body, lanes, 4, first, end, inner % lanes == 0, [&](int) {
          const Expr x = cast(body.value(v), type);
          body.store_to(buffer, type, body.store_place(v) * scalar_bytes(type), x);
        });
        for (size_t d = 0; d < counters.size(); ++d) body.close();
      });
  return builder.finish(fmt::format("copy {}", shape_text(shape)), 0, (4.0 + scalar_bytes(type)) * product(shape));
}

Synthesis update_records(const graph::Plan& plan, const graph::Group& group, const machine::Machine& machine) {
  const int lanes = machine.f32_lanes();
  const graph::Graph& g = plan.graph;
  const Node& root = g[group.root];
  const graph::ValueId value = root.operands[1];
  const std::vector<graph::ValueId> starts(root.operands.begin() + 2, root.operands.end());
  const Format& f = *root.type.element.format;
  Synthesis out;
  StepBuilder builder(g);
  Builder& b = builder.b;
  const BufferId source = builder.value(value, false);
  for (const graph::ValueId s : starts)
    if (const graph::ValueId from = follow(plan, group, s).source; graph::reads_memory(group, from))
      builder.value(from, false);
  const BufferId target = builder.value(group.root, true);
  if (starts.empty()) {
    const int64_t bytes = graph::byte_size(root.type);
    copy_whole(b, source, target, bytes, 4 * machine.grain(kGrain), lanes);
    out.steps.push_back(builder.finish(fmt::format("update {} bytes", bytes), 0, 2.0 * bytes));
    return out;
  }
  if (f.tile_bytes > 0 || f.tensor_bytes > 0)
    throw user_error("update: a part of a state cannot be written in a format with fields per tile or tensor");
  const std::vector<int64_t> whole = extents_of(root.type.shape), shape = extents_of(g[value].type.shape);
  const size_t lead = shape.size() - whole.size();  // axes of the starts
  const int64_t columns = whole.back(), own_columns = shape.back(),
                own_rows = product(shape) / std::max<int64_t>(own_columns, 1);
  const BlobLayout to = blob_layout(f, product(whole) / columns, columns), from = blob_layout(f, own_rows, own_columns);
  if (f.row_bytes > 0 && own_columns != columns)
    throw user_error("update: a part of a row cannot be written in a format with fields per row");
  const std::vector<int64_t> outer(shape.begin(), shape.end() - 1);
  const std::vector<int64_t> outer_strides = dense_strides_of({whole.begin(), whole.end() - 1});
  std::vector<int64_t> parts(shape.begin(), shape.begin() + lead);
  if (parts.empty()) parts.push_back(1);
  std::map<graph::ValueId, Access> loads;
  for (const graph::ValueId s : starts) {
    loads[s] = follow(plan, group, s);
    loads[s].strides.resize(parts.size(), 0);
  }
  Body body(builder, plan, group, parts, std::vector<bool>(parts.size(), true), loads,
            {{group.root, Access{group.root, 0, std::vector<int64_t>(parts.size(), 0)}}});
  const auto place_row = [&](Expr row, const std::vector<Expr>& digit, const std::vector<Expr>& starts_at) {
    Expr target_row = b.i64(0), target_block = b.i64(0);
    for (size_t k = 0; k < starts.size(); ++k) {
      const Expr at = starts_at[k];
      const Expr room = b.i64(whole[k] - shape[lead + k]);
      Expr ok = (0 <= at) & (at <= room);
      const bool is_last = k + 1 == starts.size();
      if (is_last) ok = ok & (at % f.block == 0);
      b.guard(ok, at, loop::kGuardUpdate);
      const Expr inside = max(b.i64(0), min(at, room));
      if (is_last) {
        target_block = inside / f.block;
      } else {
        target_row = target_row + (inside + digit[lead + k]) * outer_strides[k];
      }
    }
    copy_bytes(b, source, row * from.row_stride, target, target_row * to.row_stride + target_block * f.block_bytes,
               from.row_stride, lanes);
    if (f.row_bytes > 0)
      copy_bytes(b, source, from.section[1] + row * f.row_bytes, target, to.section[1] + target_row * f.row_bytes,
                 f.row_bytes, lanes);
  };
  b.loop(LoopKind::parallel, b.i64(0), b.i64(own_rows), 1, [&](Expr row) {
    const std::vector<Expr> digit = digits(b, row, outer);
    body.begin_task();
    const int axes = body.extents().size();
    for (int k = 0; k + 1 < axes; ++k) body.open(k, digit[body.first_axis(k)]);
    const int last = body.first_axis(axes - 1);
    body.open_lanes(last < 0 ? Expr{} : digit[last], 1, {});
    std::vector<Expr> at;
    Expr wanted;
    for (const graph::ValueId s : starts) {
      at.push_back(cast(body.value(s), Scalar::i64));
      if (g[s].type.shape.empty()) continue;
      const Expr some = 0 <= at.back();
      wanted = !wanted.exists() ? some : wanted & some;
    }
    for (int k = 0; k < axes; ++k) body.close();
    const auto place = [&] { place_row(row, digit, at); };
    wanted.exists() ? b.branch(wanted, place) : place();
  });
  out.steps.push_back(builder.finish(fmt::format("update records {} into {}", shape_text(shape), shape_text(whole)), 0,
                                     2.0 * (own_rows * from.row_stride)));
  return out;
}

}  // namespace lumen::synth
