// GEMM on GPUs: a packed weight in registers of lanes, many rows of activations in shared memory.
#include "kernel/synth/gemm/held/held.h"

#include <fmt/format.h>

#include "kernel/synth/gemm/bid/bid.h"
#include "kernel/synth/gemm/choose.h"
#include "kernel/synth/gemm/gpu/dot_block_plan.h"

namespace lumen::synth {
void bid_held(const Contraction& c, Bids& bids) {
  const std::vector<HeldPlan> plans = choose_held(c.plain, c.machine, c.exact);
  if (plans.empty()) return bids.refuse("no packed weight that lanes share by codes, or no instruction that holds it");
  const DotProblem& p = c.plain;
  const double ordered = p.m.extent * p.k.extent * (scalar_bytes(p.loads[0].scalar) + 2.0);
  const double before = cycles_of_moving(c.machine, ordered * c.machine.costs.blocks.ordering);
  for (const HeldPlan& t : plans) {
    const HeldPlan& first = plans.front();
    const bool same_bits =
        t.splits == 1 && first.splits == 1 && t.slices == first.slices && t.tile.row == first.tile.row;
    if (&t != &first && !same_bits) continue;
    ProductSchedule schedule =
        bids.row().with(ProductSchedule::Blocks{t.tile.n(), t.tile.m(), t.row_tiles(p), t.weight_tiles(p),
                                                HeldPlan::kStage, t.stages, t.panels(), 2 * t.weights.together},
                        p);
    schedule.splits = t.splits;
    bids.offer(schedule.with(t.tile.row->row), fmt::format("{} {}", describe_shape(p), describe(t, p)),
               before + t.cycles, [c, t](Synthesis& out) { write_held(c.graph, c.plain, t, c.machine, out); });
  }
}

}  // namespace lumen::synth
