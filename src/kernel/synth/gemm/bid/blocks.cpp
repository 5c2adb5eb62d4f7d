// Thread blocks that multiply panels in shared memory: GEMM on GPUs.
#include <fmt/format.h>

#include <algorithm>

#include "kernel/synth/gemm/bid/bid.h"
#include "kernel/synth/gemm/choose.h"
#include "kernel/synth/gemm/gpu/dot_block.h"
#include "kernel/synth/step/shortlist.h"

namespace lumen::synth {
namespace {

// Whether the earlier steps are the same, and sums are added in the same order by the same instruction.
bool same_bits(const BlockDot& x, const BlockDot& y) {
  const auto whole = [](const BlockPlan& t) { return t.splits == 1 && !t.scheduler.stream_k; };
  const auto loads = [](const BlockDot& d) {
    std::vector<size_t> out;
    for (const auto& [load, made] : d.before) out.push_back(load);
    return out;
  };
  const BlockPlan &a = x.plan, &b = y.plan;
  return x.problem.joint_k.empty() == y.problem.joint_k.empty() && whole(a) && whole(b) && loads(x) == loads(y) &&
         a.tile.row == b.tile.row && a.tile.stage_k == b.tile.stage_k && !(a.tile.row && a.tile.has_partial());
}

// Operands that earlier steps have laid out are copied like those in memory.
ProductSchedule schedule_of(const BlockDot& d, ProductSchedule row) {
  using By = ProductSchedule::By;
  const BlockPlan& t = d.plan;
  const auto by = [&](size_t load, Supply s) {
    for (const auto& [laid, made] : d.before)
      if (laid == load) return By::step;
    return s == Supply::copies || s == Supply::beside ? By::none : By::lanes;
  };
  row.a.by = by(0, t.a);
  row.b.by = by(1, t.b);
  row.splits = t.splits;
  row.instruction = t.tile.row ? t.tile.row->row : "f32 fma";
  return row.with(ProductSchedule::Blocks{t.tile.m(), t.tile.n(), t.m_tiles, t.n_tiles, t.tile.stage_k, t.stages,
                                          t.panels_a(), t.buffers},
                  d.problem);
}

}  // namespace

void bid_blocks(const Contraction& c, Bids& bids) {
  const std::vector<BlockDot> dots = choose_block_dots(c.problem, c.machine, c.exact, c.scratch);
  if (dots.empty()) return bids.refuse("no blocks of lanes, or too little for one");
  size_t offered = 0;
  for (const BlockDot& d : dots) {
    if (offered > 0 && (offered == kMostCandidates || !same_bits(dots.front(), d))) continue;
    ++offered;
    // Memory traffic is a lower bound; only first and last stages of a block wait in addition.
    const machine::BlockCosts& costs = c.machine.costs.blocks;
    const double memory = costs.alone * c.bytes() / (c.machine.units * costs.bytes);
    bids.offer(schedule_of(d, bids.row()), fmt::format("{} {}", describe_shape(d.problem), describe(d.plan, d.problem)),
               std::max(d.cycles, memory), [c, d](Synthesis& out) { write_block_dot(c.graph, d, c.machine, out); });
  }
}

}  // namespace lumen::synth
