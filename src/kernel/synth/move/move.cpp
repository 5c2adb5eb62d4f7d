// Kernels that place values: copies of views, gather, scatter_add, concat, pad and update with run-time starts. Casts
// into a format go to encode.cpp. Proved by tests/kernel/synth/synth_move_test.cpp.
#include "kernel/synth/move/move.h"

#include <algorithm>
#include <numeric>

#include "base/check.h"
#include "kernel/synth/body/nest.h"
#include "kernel/synth/encode/encode.h"
#include "kernel/synth/map/map.h"
#include "kernel/synth/move/pad.h"
#include "kernel/synth/move/scatter_rows.h"

namespace lumen::synth {

using graph::Node;
using graph::Op;

namespace {

constexpr int64_t kGrain = 8192;
constexpr size_t kPlacedTogether = 8;  // operands by one kernel

class MoveKernel {
 public:
  MoveKernel(const graph::Plan& plan, const graph::Group& group, const machine::Machine& target)
      : plan_(plan),
        g_(plan.graph),
        group_(group),
        root_(group.root),
        node_(plan.graph[group.root]),
        target_(target),
        lanes_(target.f32_lanes()) {}

  Synthesis run() {
    switch (node_.op) {
      case Op::gather_:
        gather();
        break;
      case Op::scatter_add_:
        if (auto by_rows = scatter_by_rows(plan_, group_, target_)) return *std::move(by_rows);
        fill_zero();
        scatter_add();
        break;
      case Op::concat_:
        concat();
        break;
      case Op::pad_: {
        if (auto step = synthesize_pad(plan_, group_, target_)) {
          out_.steps.push_back(*std::move(step));
          break;
        }
        fill_zero();
        std::vector<int64_t> steps = node_.attributes.strides;
        if (steps.empty()) steps.assign(node_.type.shape.size(), 1);
        place(node_.operands[0], node_.attributes.starts, steps, {}, "pad");
        break;
      }
      case Op::update_: {
        const size_t rank = node_.type.shape.size();
        const std::vector<graph::ValueId> starts(node_.operands.begin() + 2, node_.operands.end());
        if (node_.type.element.format) return update_records(plan_, group_, target_);
        place(node_.operands[1], std::vector<int64_t>(rank, 0), std::vector<int64_t>(rank, 1), starts, "update");
        break;
      }
      default:
        LUMEN_UNREACHABLE("a move of {}", graph::op_info(node_.op).name);
    }
    return std::move(out_);
  }

 private:
  void finish(StepBuilder& builder, const std::string& plan, double bytes) {
    out_.steps.push_back(builder.finish(plan, 0, bytes));
  }

  double result_bytes() const { return graph::byte_size(node_.type); }

  // Writes zeros to the whole result.
  void fill_zero() {
    StepBuilder builder(g_);
    Builder& b = builder.b;
    const BufferId buffer = builder.value(root_, true);
    const int64_t bytes = graph::byte_size(node_.type), wide = int64_t{lanes_} * 4, grain = 4 * target_.grain(kGrain);
    const int64_t tasks = (bytes + grain - 1) / grain;
    b.loop(LoopKind::parallel, b.i64(0), b.i64(tasks), 1, [&](Expr task) {
      const Expr from = task * grain;
      const Expr to = min(from + grain, b.i64(bytes));
      const Expr whole = to - (to - from) % wide;
      b.loop(LoopKind::serial, from, whole, wide,
             [&](Expr at) { b.store(buffer, b.integer(0, {Scalar::i32, lanes_}), at, 4); });
      b.loop(LoopKind::serial, whole, to, 1, [&](Expr at) { b.store(buffer, b.integer(0, {Scalar::u8, 1}), at, 1); });
    });
    finish(builder, fmt::format("zero {} bytes", bytes), bytes);
  }

  // The copy of a value into the result, as tasks of a kernel.
  struct Placing {
    std::unique_ptr<Body> body;
    Tasks tasks;
    std::function<void(Expr task)> write;
  };

  // Copies the operands; several share a kernel, each with its own tasks.
  void concat() {
    const std::vector<int64_t> whole = extents_of(node_.type.shape);
    const int axis =
        node_.attributes.axis < 0 ? node_.attributes.axis + static_cast<int>(whole.size()) : node_.attributes.axis;
    std::vector<int64_t> starts(whole.size(), 0);
    for (size_t first = 0; first < node_.operands.size(); first += kPlacedTogether) {
      const size_t end = std::min(first + kPlacedTogether, node_.operands.size());
      StepBuilder builder(g_);
      std::vector<Placing> parts;
      std::string shapes;
      double elements = 0;
      for (size_t k = first; k < end; ++k) {
        const graph::ValueId part = node_.operands[k];
        const std::vector<int64_t> shape = extents_of(g_[part].type.shape);
        if (product(shape) > 0) {
          parts.push_back(placing(builder, part, starts, std::vector<int64_t>(shape.size(), 1), {}));
          shapes += (shapes.empty() ? "" : ", ") + shape_text(shape);
          elements += product(shape);
        }
        starts[axis] += shape[axis];
      }
      if (parts.empty()) continue;
      write(builder, parts);
      finish(builder, fmt::format("concat {} into {}", shapes, shape_text(whole)), 8 * elements);
    }
  }

  void place(graph::ValueId value, const std::vector<int64_t>& first, const std::vector<int64_t>& steps,
             const std::vector<graph::ValueId>& starts, const std::string& what) {
    const std::vector<int64_t> shape = extents_of(g_[value].type.shape);
    if (product(shape) == 0) return;
    StepBuilder builder(g_);
    std::vector<Placing> alone;
    alone.push_back(placing(builder, value, first, steps, starts));
    write(builder, alone);
    finish(builder, fmt::format("{} {} into {}", what, shape_text(shape), shape_text(extents_of(node_.type.shape))),
           8.0 * product(shape));
  }

  // One loop over the tasks of all parts, one part after the other.
  static void write(StepBuilder& builder, const std::vector<Placing>& parts) {
    Builder& b = builder.b;
    int64_t all = 0;
    for (const Placing& part : parts) all += part.tasks.count();
    const std::function<void(size_t, Expr)> from = [&](size_t k, Expr task) {
      if (k + 1 == parts.size()) return parts[k].write(task);
      const int64_t count = parts[k].tasks.count();
      b.branch(task < count, [&] { parts[k].write(task); }, [&] { from(k + 1, task - count); });
    };
    b.loop(LoopKind::parallel, b.i64(0), b.i64(all), 1, [&](Expr task) { from(0, task); });
  }

  // value[i..] -> result[starts + first + i * steps]; axes of starts are the first axes of value, and every part goes
  // to its own place.
  Placing placing(StepBuilder& builder, graph::ValueId value, const std::vector<int64_t>& first,
                  const std::vector<int64_t>& steps, const std::vector<graph::ValueId>& starts) {
    const std::vector<int64_t> shape = extents_of(g_[value].type.shape), whole = extents_of(node_.type.shape);
    const std::vector<int64_t> dense = dense_strides_of(whole);
    const size_t lead = shape.size() - whole.size();
    Access to{root_, 0, std::vector<int64_t>(shape.size(), 0)};
    for (size_t d = 0; d < whole.size(); ++d) {
      to.offset += first[d] * dense[d];
      if (shape[lead + d] != 1) to.strides[lead + d] = steps[d] * dense[d];
    }
    std::map<graph::ValueId, Access> loads{{value, follow_to(plan_, group_, value, shape)}};
    for (const graph::ValueId s : starts) {
      loads[s] = follow(plan_, group_, s);
      loads[s].strides.resize(shape.size(), 0);  // a start's axes are the first
    }
    const std::vector<bool> barrier = behind(lead, shape.size());
    for (const auto& [v, access] : loads) declare_load(builder, access.source);
    builder.value(root_, true);
    Placing out;
    out.body = std::make_unique<Body>(builder, plan_, group_, shape, barrier, loads,
                                      std::map<graph::ValueId, Access>{{root_, to}});
    Body& body = *out.body;
    const std::vector<int64_t> outer = body.outer();
    const int64_t inner = body.extents().back();
    const int last = body.first_axis(outer.size());
    const bool apart = last >= 0 && last < static_cast<int>(lead);  // along the last axis each element is a part
    const int lanes = body.store_stride(root_) == 1 && !apart ? lanes_ : 1;
    const int64_t unit = std::lcm<int64_t>(body.chunking(lanes).chunk, int64_t{lanes} * 4);
    out.tasks = cut(outer, inner, target_.grain(kGrain), unit);
    out.write = [=, this, &b = builder.b, &body, tasks = out.tasks](Expr task) {
      // Moves the result's place to the starts. The innermost scope must end with the part.
      const auto seek = [&](const std::function<void()>& write) {
        std::vector<Expr> at;
        Expr wanted;
        if (!apart) body.open_scalar();
        for (const graph::ValueId s : starts) {
          at.push_back(cast(body.value(s), Scalar::i64));
          if (g_[s].type.shape.empty()) continue;
          const Expr some = 0 <= at.back();
          wanted = !wanted.exists() ? some : wanted & some;
        }
        if (!apart) body.close();
        const auto go = [&] {
          Expr shift = b.i64(0);
          for (size_t d = 0; d < starts.size(); ++d) {
            const Expr room = b.i64(whole[d] - shape[lead + d]);
            const Expr ok = (0 <= at[d]) & (at[d] <= room);
            b.guard(ok, at[d], loop::kGuardUpdate);
            const Expr inside = max(b.i64(0), min(at[d], room));
            shift = shift + inside * dense[d];
          }
          body.shift_store(root_, shift);
          write();
        };
        wanted.exists() ? b.branch(wanted, go) : go();
      };
      const auto begin = [&] {
        body.begin_task();
        if (!starts.empty() && lead == 0) seek([] {});
      };
      begin();
      for_rows(b, tasks, outer, inner, task, [&](const std::vector<Expr>& counters, Expr from, Expr upto) {
        for (size_t d = 0; d < counters.size(); ++d) body.open(d, counters[d]);
        const auto run = [&] {
          for_lanes(b, body, lanes, lanes == 1 ? 1 : 4, from, upto, inner % lanes == 0,
                    [&](int) { body.store(root_, body.value(value)); });
        };
        if (apart) {
          b.loop(LoopKind::serial, from, upto, 1, [&](Expr at) {
            body.open_lanes(at, 1, {});
            seek([&] { body.store(root_, body.value(value)); });
            body.close();
          });
        } else if (lead > 0) {
          seek(run);
        } else {
          run();
        }
        for (size_t d = 0; d < counters.size(); ++d) body.close();
      });
    };
    return out;
  }

  void declare_load(StepBuilder& builder, graph::ValueId source) {
    const Node& n = g_[source];
    if (graph::reads_memory(group_, source))
      builder.value(source, false);
    else if (n.op == Op::cast_)
      builder.value(n.operands[0], false);
  }

  // The row of a run-time index, checked; clamped to the table so that the kernel may go on.
  Expr checked_index(Builder& b, Expr index, int64_t rows) {
    index = cast(index, Scalar::i64);
    const Expr ok = (0 <= index) & (index < rows);
    b.guard(ok, index, loop::kGuardIndex);
    return max(b.i64(0), min(index, b.i64(rows - 1)));
  }

  // The first `lead` of the axes do not merge with the others.
  static std::vector<bool> behind(size_t lead, size_t axes) {
    std::vector<bool> barrier(axes, false);
    if (lead > 0) barrier[lead - 1] = true;
    return barrier;
  }

  void gather() {
    const graph::ValueId table = node_.operands[0], index = node_.operands[1];
    const std::vector<int64_t> shape = extents_of(node_.type.shape);
    const std::vector<int64_t> table_shape = extents_of(g_[table].type.shape);
    const size_t lead = g_[index].type.shape.size();
    if (product(shape) == 0) return;
    const Access from = follow(plan_, group_, table), number = follow(plan_, group_, index);
    // Extent-1 axes have stride 0 in an access, but a table of one row needs none.
    Access rows{from.source, from.offset, std::vector<int64_t>(shape.size(), 0)}, which = number;
    which.strides.resize(shape.size(), 0);
    for (size_t d = lead; d < shape.size(); ++d) rows.strides[d] = from.strides[1 + d - lead];
    const std::vector<bool> barrier = behind(lead, shape.size());
    StepBuilder builder(g_);
    Builder& b = builder.b;
    declare_load(builder, from.source);
    declare_load(builder, number.source);
    builder.value(root_, true);
    Body body(builder, plan_, group_, shape, barrier, {{table, rows}, {index, which}}, {});
    const std::vector<int64_t> outer = body.outer();
    const int64_t inner = body.extents().back();
    const int last = outer.size();
    const bool lanes_index =
        body.first_axis(last) >= 0 && body.first_axis(last) < static_cast<int>(lead);  // each lane another row
    const int64_t unit = lanes_index ? 1 : std::lcm<int64_t>(body.chunking(lanes_).chunk, int64_t{lanes_} * 4);
    const Tasks tasks = cut(outer, inner, target_.grain(kGrain), unit);
    const int64_t row_stride = from.strides[0];
    const auto seek = [&] {
      const Expr i = checked_index(b, body.value(index), table_shape[0]);
      body.shift_load(table, i * row_stride);
    };
    for_tasks(
        b, tasks, outer, inner, [&] { body.begin_task(); },
        [&](const std::vector<Expr>& counters, Expr first, Expr end) {
          for (size_t d = 0; d < counters.size(); ++d) body.open(d, counters[d]);
          if (lanes_index) {
            b.loop(LoopKind::serial, first, end, 1, [&](Expr at) {
              body.open_lanes(at, 1, {});
              seek();
              body.store(root_, body.value(table));
              body.close();
            });
          } else {
            body.open_scalar();
            const Expr i = checked_index(b, body.value(index), table_shape[0]);
            body.close();
            body.shift_load(table, i * row_stride);
            for_lanes(b, body, lanes_, 4, first, end, inner % lanes_ == 0,
                      [&](int) { body.store(root_, body.value(table)); });
          }
          for (size_t d = 0; d < counters.size(); ++d) body.close();
        });
    finish(builder, fmt::format("gather {} of {}", shape_text(shape), shape_text(table_shape)), 2 * result_bytes());
  }

  // Columns in parallel, values in their order: the same bits at any thread count.
  void scatter_add() {
    const graph::ValueId value = node_.operands[0], index = node_.operands[1];
    const std::vector<int64_t> shape = extents_of(g_[value].type.shape), whole = extents_of(node_.type.shape);
    const size_t lead = g_[index].type.shape.size();
    if (product(shape) == 0) return;
    Access which = follow(plan_, group_, index);
    which.strides.resize(shape.size(), 0);
    const std::vector<int64_t> dense = dense_strides_of(whole);
    Access to{root_, 0, std::vector<int64_t>(shape.size(), 0)};
    for (size_t d = lead; d < shape.size(); ++d)
      if (shape[d] != 1) to.strides[d] = dense[1 + d - lead];
    const std::vector<bool> barrier = behind(lead, shape.size());
    const Access from = follow_to(plan_, group_, value, shape);
    StepBuilder builder(g_);
    Builder& b = builder.b;
    declare_load(builder, from.source);
    declare_load(builder, which.source);
    const BufferId buffer = builder.value(root_, true);
    Body body(builder, plan_, group_, shape, barrier, {{value, from}, {index, which}}, {{root_, to}});
    const std::vector<int64_t>& extents = body.extents();
    std::vector<int> lead_axes, column_axes;
    for (size_t d = 0; d < extents.size(); ++d) {
      const bool is_lead = body.first_axis(d) < static_cast<int>(lead);
      (is_lead ? lead_axes : column_axes).push_back(d);
    }
    const Scalar s = node_.type.element.scalar;
    const auto add = [&] {
      const Expr place = body.store_place(root_) * scalar_bytes(s);
      const Expr old =
          b.load(buffer, {s, body.lanes()}, place, scalar_bytes(s), body.lanes() > 1 ? body.count() : Expr{});
      body.store(root_, old + body.value(value));
    };
    const auto seek = [&] { body.shift_store(root_, checked_index(b, body.value(index), whole[0]) * dense[0]); };
    if (column_axes.empty()) {  // every value its own row: one task, one after another
      b.loop(LoopKind::parallel, b.i64(0), b.i64(1), 1, [&](Expr) {
        body.begin_task();
        const int last = lead_axes.back();
        lead_axes.pop_back();
        for_axes(b, body, lead_axes, [&] {
          b.loop(LoopKind::serial, b.i64(0), b.i64(extents[last]), 1, [&](Expr at) {
            body.open_lanes(at, 1, {});
            seek();
            add();
            body.close();
          });
        });
      });
    } else {
      std::vector<int64_t> outer;
      for (size_t k = 0; k + 1 < column_axes.size(); ++k) outer.push_back(extents[column_axes[k]]);
      const int64_t inner = extents[column_axes.back()];
      const int64_t unit = std::lcm<int64_t>(body.chunking(lanes_).chunk, int64_t{lanes_} * 2);
      Tasks tasks;
      tasks.rows = product(outer);
      tasks.part = std::min(unit, inner);
      tasks.parts = (inner + tasks.part - 1) / tasks.part;
      for_tasks(
          b, tasks, outer, inner, [&] { body.begin_task(); },
          [&](const std::vector<Expr>& counters, Expr first, Expr end) {
            for (size_t k = 0; k < counters.size(); ++k) body.open(column_axes[k], counters[k]);
            for_axes(b, body, lead_axes, [&] {
              body.open_scalar();
              const Expr i = checked_index(b, body.value(index), whole[0]);
              body.close();
              body.shift_store(root_, i * dense[0]);
              for_lanes(b, body, lanes_, 2, first, end, inner % lanes_ == 0, [&](int) { add(); });
            });
            for (size_t k = 0; k < counters.size(); ++k) body.close();
          });
    }
    finish(builder, fmt::format("scatter_add {} into {}", shape_text(shape), shape_text(whole)), 12.0 * product(shape));
  }

  const graph::Plan& plan_;
  const graph::Graph& g_;
  const graph::Group& group_;
  graph::ValueId root_;
  const Node& node_;
  const machine::Machine& target_;
  int lanes_;
  Synthesis out_;
};

}  // namespace

Synthesis synthesize_move(const graph::Plan& plan, const graph::Group& group, const machine::Machine& target) {
  const Node& root = plan.graph[group.root];
  if (root.op == Op::cast_ && root.type.element.format)
    return has_map(plan, group) ? encode_map(plan, group, target) : synthesize_cast(plan, group, target);
  if (is_load(plan, group, group.root)) return synthesize_map(plan, group, target);
  return MoveKernel(plan, group, target).run();
}

}  // namespace lumen::synth
