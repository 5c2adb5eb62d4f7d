// Joins parts of the keys, see attend.h. In the order of the parts: M = max m_p, l = sum l_p exp(m_p - M),
// o = sum o_p exp(m_p - M) / l. Proved by tests/kernel/synth/attention/synth_attend_test.cpp.
#include "kernel/synth/attention/attend.h"

namespace lumen::synth {

namespace {
constexpr int64_t kGrain = 8192;  // numbers per task
}

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
        const auto extreme = [&](int64_t part, int64_t which) {
          return b.load(extremes, one, row * 8 + (part * all * 2 + which) * 4, 4);
        };
        std::vector<Expr> row_maxima, weights;
        for (int64_t p = 0; p < parts; ++p) row_maxima.push_back(extreme(p, 0));
        Expr top = row_maxima[0], total;
        for (const Expr t : row_maxima) top = max(top, t);
        for (int64_t p = 0; p < parts; ++p) {
          weights.push_back(exp(row_maxima[p] - top));
          const Expr part = extreme(p, 1) * weights[p];
          total = p == 0 ? part : total + part;
        }
        for_lanes(b, body, lanes, 1, from, to, width % lanes == 0, [&](int) {
          Expr sum;
          for (int64_t p = 0; p < parts; ++p) {
            const Expr at = (row * width + body.at()) * 4 + p * all * width * 4;
            const Expr x = b.load(partial, {Scalar::f32, body.lanes()}, at, 4, body.count());
            const Expr part = x * b.splat(weights[p], body.lanes());
            sum = p == 0 ? part : sum + part;
          }
          const Expr o = sum / b.splat(total, body.lanes());
          body.store(attention.written, cast(o, plan.graph[attention.written].type.element.scalar));
        });
        for (int d = 0; d < opened; ++d) body.close();
      });
  return builder.finish(fmt::format("attend merge {} splits {} width {} x{}", shape_text(rows), parts, width, lanes),
                        2 * parts * all * width, 4.0 * ((parts + 1) * all * width));
}

}  // namespace lumen::synth
