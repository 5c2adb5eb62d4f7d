// Plain copies that other kernels need: loads laid out in scratch, and records of one blob into another.
// Proved by tests/kernel/synth/synth_move_test.cpp.
#include "kernel/synth/encode/copy.h"

#include <algorithm>
#include <numeric>

#include "base/check.h"
#include "base/error.h"
#include "kernel/synth/body/nest.h"
#include "kernel/synth/encode/encode.h"

namespace lumen::synth {

using graph::Node;
using graph::Op;
using loop::BufferId;
using loop::ValueId;

namespace {
constexpr int64_t kGrain = 8192;

// bytes [from, from + count) of one buffer to another; `count` known.
void copy_bytes(loop::Builder& b, BufferId source, ValueId from, BufferId target, ValueId to, int64_t count,
                int lanes) {
  const int64_t wide = int64_t{lanes} * 4, whole = count / wide * wide;
  b.loop(loop::LoopKind::serial, b.i64(0), b.i64(whole), wide, [&](ValueId at) {
    b.store(target, b.load(source, {Scalar::i32, lanes}, b.add(from, at), 1), b.add(to, at), 1);
  });
  if (whole < count)
    b.loop(loop::LoopKind::serial, b.i64(whole), b.i64(count), 1,
           [&](ValueId at) { b.store(target, b.load(source, {Scalar::u8, 1}, b.add(from, at), 1), b.add(to, at), 1); });
}
}  // namespace

Step copy_to_scratch(const graph::Plan& plan, const graph::Group& group, graph::ValueId v, int scratch,
                     const machine::Machine& target) {
  const std::vector<int64_t> shape = extents_of(plan.graph[v].type.shape);
  const Access from = follow(plan, group, v);
  const std::vector<int64_t> dense = dense_strides_of(shape);
  Access to{v, 0, std::vector<int64_t>(shape.size(), 0)};
  for (size_t d = 0; d < shape.size(); ++d)
    if (shape[d] != 1) to.strides[d] = dense[d];
  Draft draft(plan.graph);
  loop::Builder& b = draft.b;
  for (const graph::ValueId input : group.inputs) draft.value(input, false);
  const BufferId buffer = draft.scratch(scratch, product(shape) * 4, true);
  Body body(draft, plan, group, shape, {}, {{v, from}}, {{v, to}});
  const int lanes = target.f32_lanes();
  std::vector<int64_t> outer = body.extents();
  const int64_t inner = outer.back();
  outer.pop_back();
  const Tasks tasks =
      cut(outer, inner, target.grain(kGrain), std::lcm<int64_t>(body.chunking(lanes).chunk, int64_t{lanes} * 4));
  for_tasks(
      b, tasks, outer, inner, [&] { body.begin_task(); },
      [&](const std::vector<ValueId>& counters, ValueId first, ValueId end) {
        for (size_t d = 0; d < counters.size(); ++d) body.open(static_cast<int>(d), counters[d]);
        for_lanes(b, body, lanes, 4, first, end, inner % lanes == 0, [&](int) {
          const ValueId x = b.convert(ScalarOp::cast_, Scalar::f32, body.value(v));
          body.store_to(buffer, Scalar::f32, b.mul(body.store_place(v), b.i64(4)), x);
        });
        for (size_t d = 0; d < counters.size(); ++d) body.close();
      });
  return draft.finish(fmt::format("copy {}", shape_text(shape)), 0, 8.0 * static_cast<double>(product(shape)));
}

Synthesis update_records(const graph::Plan& plan, const graph::Group& group, const machine::Machine& machine) {
  const int lanes = machine.f32_lanes();
  const graph::Graph& g = plan.graph;
  const Node& root = g[group.root];
  const graph::ValueId value = root.operands[1];
  const std::vector<graph::ValueId> starts(root.operands.begin() + 2, root.operands.end());
  const Format& f = *root.type.element.format;
  Synthesis out;
  Draft draft(g);
  loop::Builder& b = draft.b;
  const BufferId source = draft.value(value, false);
  for (const graph::ValueId s : starts)
    if (std::find(group.inputs.begin(), group.inputs.end(), follow(plan, group, s).source) != group.inputs.end())
      draft.value(follow(plan, group, s).source, false);
  const BufferId target = draft.value(group.root, true);
  const int64_t bytes = graph::byte_size(root.type);
  if (starts.empty()) {
    const int64_t part = 4 * machine.grain(kGrain);
    b.loop(loop::LoopKind::parallel, b.i64(0), b.i64((bytes + part - 1) / part), 1, [&](ValueId task) {
      const ValueId from = b.mul(task, b.i64(part));
      if (bytes % part == 0) {
        copy_bytes(b, source, from, target, from, part, lanes);
        return;
      }
      const ValueId is_last = b.op(ScalarOp::eq_, task, b.i64(bytes / part));
      b.branch(
          is_last, [&] { copy_bytes(b, source, from, target, from, bytes % part, lanes); },
          [&] { copy_bytes(b, source, from, target, from, part, lanes); });
    });
    out.steps.push_back(draft.finish(fmt::format("update {} bytes", bytes), 0, 2.0 * static_cast<double>(bytes)));
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
  std::vector<int64_t> outer(shape.begin(), shape.end() - 1), outer_strides(whole.begin(), whole.end() - 1);
  outer_strides = dense_strides_of(outer_strides);
  std::vector<int64_t> parts(shape.begin(), shape.begin() + static_cast<std::ptrdiff_t>(lead));
  if (parts.empty()) parts.push_back(1);
  std::map<graph::ValueId, Access> loads;
  for (const graph::ValueId s : starts) {
    loads[s] = follow(plan, group, s);
    loads[s].strides.resize(parts.size(), 0);
  }
  Body body(draft, plan, group, parts, std::vector<bool>(parts.size(), true), loads,
            {{group.root, Access{group.root, 0, std::vector<int64_t>(parts.size(), 0)}}});
  const auto place_row = [&](ValueId row, const std::vector<ValueId>& digit, const std::vector<ValueId>& starts_at) {
    ValueId target_row = b.i64(0), target_block = b.i64(0);
    for (size_t k = 0; k < starts.size(); ++k) {
      const ValueId at = starts_at[k];
      const ValueId room = b.i64(whole[k] - shape[lead + k]);
      ValueId ok = b.op(ScalarOp::and_, b.op(ScalarOp::le_, b.i64(0), at), b.op(ScalarOp::le_, at, room));
      const bool is_last = k + 1 == starts.size();
      if (is_last)
        ok = b.op(ScalarOp::and_, ok, b.op(ScalarOp::eq_, b.op(ScalarOp::rem_, at, b.i64(f.block)), b.i64(0)));
      b.guard(ok, at, loop::kGuardUpdate);
      const ValueId inside = b.op(ScalarOp::max_, b.i64(0), b.op(ScalarOp::min_, at, room));
      if (is_last) {
        target_block = b.op(ScalarOp::div_, inside, b.i64(f.block));
      } else {
        target_row = b.add(target_row, b.mul(b.add(inside, digit[lead + k]), b.i64(outer_strides[k])));
      }
    }
    copy_bytes(b, source, b.mul(row, b.i64(from.row_stride)), target,
               b.add(b.mul(target_row, b.i64(to.row_stride)), b.mul(target_block, b.i64(f.block_bytes))),
               from.row_stride, lanes);
    if (f.row_bytes > 0)
      copy_bytes(b, source, b.add(b.i64(from.section[1]), b.mul(row, b.i64(f.row_bytes))), target,
                 b.add(b.i64(to.section[1]), b.mul(target_row, b.i64(f.row_bytes))), f.row_bytes, lanes);
  };
  b.loop(loop::LoopKind::parallel, b.i64(0), b.i64(own_rows), 1, [&](ValueId row) {
    const std::vector<ValueId> digit = digits(b, row, outer);
    body.begin_task();
    const int axes = static_cast<int>(body.extents().size());
    for (int k = 0; k + 1 < axes; ++k) body.open(k, digit[static_cast<size_t>(body.first_axis(k))]);
    const int last = body.first_axis(axes - 1);
    body.open_lanes(last < 0 ? -1 : digit[static_cast<size_t>(last)], 1, -1);
    std::vector<ValueId> at;
    ValueId wanted = -1;
    for (const graph::ValueId s : starts) {
      at.push_back(b.convert(ScalarOp::cast_, Scalar::i64, body.value(s)));
      if (g[s].type.shape.empty()) continue;
      const ValueId some = b.op(ScalarOp::le_, b.i64(0), at.back());
      wanted = wanted < 0 ? some : b.op(ScalarOp::and_, wanted, some);
    }
    for (int k = 0; k < axes; ++k) body.close();
    if (wanted < 0) {
      place_row(row, digit, at);
    } else {
      b.branch(wanted, [&] { place_row(row, digit, at); });
    }
  });
  out.steps.push_back(draft.finish(fmt::format("update records {} into {}", shape_text(shape), shape_text(whole)), 0,
                                   2.0 * static_cast<double>(own_rows * from.row_stride)));
  return out;
}

}  // namespace lumen::synth
