// GEMV on GPUs: a packed weight streams through shared memory; few rows of activations.
#include "kernel/synth/gemm/skinny/skinny_dot.h"

#include <fmt/format.h>

#include "base/round_up.h"
#include "kernel/synth/gemm/bid/bid.h"
#include "kernel/synth/gemm/choose.h"

namespace lumen::synth {
namespace {

double cycles_of_stream(const Contraction& c, const SkinnyDotPlan& t) {
  const machine::StreamCosts& costs = c.machine.costs.streams;
  const double rows = c.problem.m.extent;
  const double activations = rows * c.problem.k.extent * costs.activation;
  if (t.integers) return c.streamed(costs.code + rows * costs.code_row, true) + activations;
  if (t.looks_up_pairs()) return c.streamed(costs.pair + rows * costs.pair_row, true) + activations;
  return c.streamed(costs.number + rows * costs.number_row, true) + activations;
}

}  // namespace

void bid_skinny_dot(const Contraction& c, Bids& bids) {
  std::string why;
  const std::vector<SkinnyDotPlan> plans = choose_skinny_dots(c.problem, c.machine, c.exact, &why);
  if (plans.empty()) return bids.refuse("no packed weight of whole units with few rows of activations");
  const std::string note = why.empty() ? "" : ", no integers: " + why;
  for (const SkinnyDotPlan& t : plans) {
    if (t.columns != plans.front().columns) continue;  // sums in another order
    const ProductSchedule schedule = bids.row().with(
        ProductSchedule::Blocks{c.problem.m.extent, t.block_rows(), 1, ceil_div(c.problem.n.extent, t.block_rows()),
                                t.stage_units() * t.unit, t.stages(), 1, t.buffers},
        c.problem);
    bids.offer(schedule.with(t.integers ? t.integers->row.row : "f32 fma"),
               fmt::format("{} {}{}", describe_shape(c.problem), describe(t, c.problem), note), cycles_of_stream(c, t),
               [c, t, note](Synthesis& out) {
                 out.steps.push_back(write_skinny_dot(c.graph, c.problem, t, c.machine));
                 out.steps.back().plan += note;
               });
  }
}

}  // namespace lumen::synth
