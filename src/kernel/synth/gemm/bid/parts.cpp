// Register tiles over parts of a long K (split-K): the weight gradient of a convolution.
#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <optional>
#include <utility>

#include "kernel/synth/gemm/bid/bid.h"
#include "kernel/synth/gemm/choose.h"
#include "kernel/synth/gemm/cpu/dot_tile.h"
#include "kernel/synth/gemm/dot_parts.h"

namespace lumen::synth {

namespace {

// Cost of entering two steps, and of reading and writing every part's sums.
double cycles_of_adding(const Contraction& c, const DotProblem& p, int64_t parts) {
  const double sums = p.outer_extent() * p.m.extent * double(p.n.extent);
  const machine::TaskCosts& costs = c.machine.costs.tasks;
  return costs.launch + sums * double(parts + 1) / c.machine.f32_lanes() * costs.copy +
         costs.task / c.machine.task_divisor * double(p.outer_extent() * p.m.extent);
}

}  // namespace

void bid_parts(const Contraction& c, Bids& bids) {
  constexpr int64_t kMostParts = 64;
  const DotProblem& p = c.problem;
  if (c.machine.wave > 1) return bids.refuse("a GPU");
  if (!p.is_plain() || p.are_whole() || p.outer_k.empty() || !has_long_sums(p))
    return bids.refuse("K is not much longer than the result is wide");
  for (const size_t side : {0, 1})
    if (p.loads[side].kind != DotLoad::Kind::memory || p.loads[side].scalar != Scalar::f32)
      return bids.refuse("an operand is not f32 in memory");
  std::optional<TilePlan> best;
  int64_t best_parts = 0;
  double least = std::numeric_limits<double>::infinity();
  for (int64_t parts = 2; parts <= std::min(kMostParts, p.outer_k[0].extent); ++parts) {
    if (p.outer_k[0].extent % parts != 0) continue;
    const std::vector<TilePlan> plans = choose_tiles(in_parts(p, parts, 0), c.machine);
    if (plans.empty()) continue;
    const double cycles = plans[0].cycles + cycles_of_adding(c, p, parts);
    if (cycles >= least) continue;
    least = cycles;
    best = plans[0];
    best_parts = parts;
  }
  if (!best) return bids.refuse("the slowest index of K has no parts");
  const auto write = [c, p, t = *best, best_parts](Synthesis& out) {
    const int scratch = out.scratch.size();
    const DotProblem parts = in_parts(p, best_parts, scratch);
    out.scratch.push_back(parts.result_bytes);
    write_tile_kernels(c.graph, parts, t, out);
    out.steps.push_back(write_sum_of_parts(c.graph, p, best_parts, scratch, c.machine.f32_lanes()));
  };
  ProductSchedule schedule = schedule_of_tiles(bids.row(), *best, in_parts(p, best_parts, 0));
  schedule.splits = best_parts;
  bids.offer(std::move(schedule), fmt::format("{} parts {} {}", describe_shape(p), best_parts, describe(*best)),
             c.of_machine(least), write);
}

}  // namespace lumen::synth
