// Joins parts of the keys, see attend.h. In the order of the parts: M = max m_p, l = sum l_p exp(m_p - M),
// o = sum o_p exp(m_p - M) / l. Parts without keys for a row, of which only m_p is there, are left out: of a long cache
// that is hardly filled few parts are read. Proved by tests/kernel/synth/attention/synth_attend_test.cpp.
#include <algorithm>
#include <limits>

#include "kernel/synth/attention/attend.h"

namespace lumen::synth {

namespace {
constexpr int64_t kGrain = 8192;      // numbers per task
constexpr int64_t kPartsAtOnce = 16;  // whose loads do not wait for each other
constexpr double kLowest = std::numeric_limits<float>::lowest();
}  // namespace

Step attend_merge(const graph::Plan& plan, const Attention& attention, const machine::Machine& target, int64_t parts) {
  StepBuilder builder(plan.graph);
  Builder& b = builder.b;
  const std::vector<int64_t> rows = attention.row_extents();
  const int64_t all = product(rows), width = attention.width;
  const BufferId partial = builder.scratch(0, parts * all * width * 4, false);
  const BufferId extremes = builder.scratch(1, parts * all * 8, false);
  builder.value(attention.written, true);
  graph::Group nothing;
  Body body(builder, plan, nothing, attention.pick_space(), std::vector<bool>(attention.extents.size() + 1, true), {},
            {{attention.written, attention.result_access}});
  const auto axis_of = [&](size_t d) {
    for (size_t k = 0; k < body.extents().size(); ++k)
      if (body.first_axis(k) == static_cast<int>(d)) return static_cast<int>(k);
    return -1;
  };
  const bool dense = body.store_stride(attention.written) == 1 || width == 1;
  const int lanes = dense ? target.f32_lanes() : 1;
  const Tasks tasks = cut(rows, width, std::max<int64_t>(target.grain(kGrain) / parts, 1), lanes);
  const VType one{Scalar::f32, 1};
  for_tasks(
      b, tasks, rows, width, [&] { body.begin_task(); },
      [&](const std::vector<Expr>& counters, Expr from, Expr to) {
        int opened = 0;
        Expr row = b.i64(0);
        const std::vector<int64_t> strides = dense_strides_of(rows);
        for (size_t d = 0; d < counters.size(); ++d) {
          row = row + counters[d] * strides[d];
          if (axis_of(d) < 0) continue;
          body.open(axis_of(d), counters[d]);
          ++opened;
        }
        const auto extreme = [&](Expr part, int64_t which) {
          return b.load(extremes, one, (part * (all * 2) + row * 2 + which) * 4, 4);
        };
        // The maximum, and the parts from the first one with keys to the last; all of them if there is none.
        Expr top = b.real(kLowest, one), first = b.i64(parts), end = b.i64(0);
        for (int64_t p = 0; p < parts; ++p) {
          const Expr part_top = extreme(b.i64(p), 0), has_keys = b.real(kLowest, one) < part_top;
          top = max(top, part_top);
          first = min(first, select(has_keys, b.i64(p), b.i64(parts)));
          end = max(end, select(has_keys, b.i64(p + 1), b.i64(0)));
        }
        const Expr none = end <= first;
        first = select(none, b.i64(0), first);
        end = select(none, b.i64(parts), end);
        const int64_t at_once = std::min(parts, kPartsAtOnce);
        // Adds up the parts in their order; `part_of` gives what a part holds.
        const auto add_up = [&](int width_at_once, const std::function<Expr(Expr part)>& part_of) {
          const VType type{Scalar::f32, width_at_once};
          const int64_t bytes = 4 * width_at_once;
          const BufferId total = b.alloc(bytes, bytes);
          b.store(total, b.real(0, type), b.i64(0), bytes);
          b.loop(loop::LoopKind::serial, first, end, at_once, [&](Expr chunk) {
            Expr sum = b.load(total, type, b.i64(0), bytes);
            for (int64_t u = 0; u < at_once; ++u) {
              const Expr part = min(chunk + u, end - 1);  // after the last one it is read again, with a weight of 0
              const Expr weight = select(chunk + u < end, exp(extreme(part, 0) - top), b.real(0, one));
              sum = sum + part_of(part) * b.splat(weight, width_at_once);
            }
            b.store(total, sum, b.i64(0), bytes);
          });
          return b.load(total, type, b.i64(0), bytes);
        };
        const Expr total = add_up(1, [&](Expr part) { return extreme(part, 1); });
        for_lanes(b, body, lanes, 1, from, to, width % lanes == 0, [&](int) {
          const Expr sum = add_up(body.lanes(), [&](Expr part) {
            const Expr at = ((part * all + row) * width + body.at()) * 4;
            return b.load(partial, {Scalar::f32, body.lanes()}, at, 4, body.count());
          });
          const Expr o = sum / b.splat(total, body.lanes());
          body.store(attention.written, cast(o, plan.graph[attention.written].type.element.scalar));
        });
        for (int d = 0; d < opened; ++d) body.close();
      });
  return builder.finish(fmt::format("attend merge {} splits {} width {} x{}", shape_text(rows), parts, width, lanes),
                        2 * parts * all * width, 4.0 * ((parts + 1) * all * width));
}

}  // namespace lumen::synth
