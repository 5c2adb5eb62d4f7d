// Integers through a processor's matrix unit: convolutions of codes, and their linear layers.
#include <memory>

#include "kernel/synth/gemm/bid/bid.h"
#include "kernel/synth/gemm/unit/unit.h"

namespace lumen::synth {

void bid_units(const Contraction& c, Bids& bids) {
  constexpr int64_t kMostPanels = 256 << 20;  // bytes
  const std::optional<machine::TileRow> row = unit_of_codes(c.problem, c.machine);
  if (!row) return bids.refuse("no matrix unit multiplies their types");
  const auto p = std::make_shared<const DotProblem>(c.problem.with_joint_m().value_or(c.problem));
  const std::vector<UnitPlan> plans = choose_units(*p, c.machine, *row);
  const int64_t tiles = (p->n.extent + row->columns - 1) / row->columns;
  if (plans.empty() || p->outer_extent() * tiles * plans[0].panel_bytes() > kMostPanels)
    return bids.refuse("panels do not fit");
  for (const UnitPlan& t : plans)
    bids.offer(bids.row().with(t, t.row.columns, *p).with(t.row.row), describe_shape(*p) + " " + describe(t), t.cycles,
               [c, t, p](Synthesis& out) { write_unit_kernels(c.graph, *p, t, out); });
}

}  // namespace lumen::synth
