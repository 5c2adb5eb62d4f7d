// Skinny GEMM on GPUs: a weight streams into the registers of matrix instructions; few rows of activations.
#include "kernel/synth/gemm/skinny/skinny_mma.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/round_up.h"
#include "kernel/synth/gemm/bid/bid.h"
#include "kernel/synth/gemm/choose.h"

namespace lumen::synth {
namespace {

constexpr int kNarrowColumns = 16;    // up to which sums cost nothing compared to work on the weight
constexpr int64_t kTallColumns = 64;  // rows of activations, up to which all sums fit registers with room to spare

}  // namespace

void bid_skinny_mma(const Contraction& c, Bids& bids) {
  const std::vector<SkinnyMmaPlan> plans = choose_skinny_mmas(c.plain, c.machine, c.exact);
  if (plans.empty()) return bids.refuse("no weight with a few rows of activations, or no instruction for 16 of them");
  const machine::CostTable& costs = c.machine.costs;
  for (const SkinnyMmaPlan& t : plans) {
    const SkinnyMmaPlan& first = plans.front();
    if (t.waves_k != first.waves_k || t.row != first.row) continue;  // sums in another order
    const double unpacking = t.factor.kind == FactorForm::Kind::plain ? 0 : costs.streams.fragment;
    const double tall = costs.streams.fragment_tall * (t.factor.scaled.offset ? costs.streams.fragment_offset : 1);
    const double row = t.columns > kTallColumns ? tall : costs.streams.fragment_row;
    const double wide =
        t.columns > kTallColumns ? 0 : std::max(0, int(t.columns) - kNarrowColumns) * costs.streams.fragment_wide;
    const ProductSchedule schedule = bids.row().with(
        ProductSchedule::Blocks{c.plain.m.extent, t.block_rows(), 1, ceil_div(c.plain.n.extent, t.block_rows()),
                                t.stage_units() * t.order.unit, t.stages(), t.buffers, t.buffers},
        c.plain);
    bids.offer(schedule.with(t.row->row), fmt::format("{} {}", describe_shape(c.plain), describe(t, c.plain)),
               c.streamed(unpacking + t.columns * row + wide, true) + costs.streams.round,
               [c, t](Synthesis& out) { write_skinny_mma(c.graph, c.plain, t, c.machine, out); });
  }
}

}  // namespace lumen::synth
