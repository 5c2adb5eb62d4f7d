// Register tiles of f32: computes everything, whichever way it lies.
#include <fmt/format.h>

#include "kernel/synth/gemm/bid/bid.h"
#include "kernel/synth/gemm/choose.h"
#include "kernel/synth/gemm/cpu/dot_tile.h"

namespace lumen::synth {

void bid_tiles(const Contraction& c, Bids& bids) {
  const DotProblem& p = c.problem;
  // The search takes long where there is much to do: not where multiply-adds alone cost more than others bid.
  const double at_least = c.of_machine(p.flops() / 2 / c.machine.f32_lanes() * c.machine.fma_cycles);
  if (at_least > bids.least()) return bids.refuse(fmt::format("takes {:.3g} cycles at least", at_least));
  const std::vector<TilePlan> plans = choose_tiles(p, c.machine);
  if (plans.empty()) return bids.refuse("panels do not fit the second-level cache");
  for (const TilePlan& t : plans)
    bids.offer(
        describe_shape(p) + " " + describe(t), c.of_machine(t.cycles),
        [c, t](Synthesis& out) { write_tile_kernels(c.graph, c.problem, t, out); }, true);
}

}  // namespace lumen::synth
