// Register tiles of f32 or integers: computes everything, in any storage order.
#include <fmt/format.h>

#include <memory>
#include <utility>

#include "kernel/synth/gemm/bid/bid.h"
#include "kernel/synth/gemm/choose.h"
#include "kernel/synth/gemm/code_words.h"
#include "kernel/synth/gemm/cpu/dot_tile.h"

namespace lumen::synth {

namespace {

void offer_tiles(const Contraction& c, DotProblem problem, Bids& bids) {
  const std::optional<CodesDot> row = dot_of_codes(problem, c.machine);
  const auto p = std::make_shared<const DotProblem>(row ? in_words(problem, row->k) : std::move(problem));
  const std::vector<TilePlan> plans = choose_tiles(*p, c.machine, row);
  if (plans.empty()) return bids.refuse("panels do not fit the second-level cache");
  for (const TilePlan& t : plans)
    bids.offer(
        schedule_of_tiles(bids.row(), t, *p), describe_shape(*p) + " " + describe(t), c.of_machine(t.cycles),
        [c, t, p](Synthesis& out) { write_tile_kernels(c.graph, *p, t, out); }, true);
}

}  // namespace

ProductSchedule schedule_of_tiles(const ProductSchedule& row, const TilePlan& t, const DotProblem& p) {
  using Place = ProductSchedule::Place;
  using By = ProductSchedule::By;
  ProductSchedule out = row.with(t, t.lanes, p).with(t.products());
  const auto fetched = [](Fetch f) {
    return f == Fetch::direct  ? ProductSchedule::Operand{}
           : f == Fetch::tiles ? ProductSchedule::Operand{Place::scratch, By::step}
                               : ProductSchedule::Operand{Place::panel, By::task};
  };
  out.a = fetched(t.a);
  out.b = fetched(t.b);
  if (t.stages > 1) out.sums = Place::panel;
  return out;
}

void bid_tiles(const Contraction& c, Bids& bids) {
  const DotProblem& p = c.problem;
  // The search takes long for large problems: skip it if multiply-adds alone cost more than other bids.
  const std::optional<CodesDot> row = dot_of_codes(p, c.machine);
  const double lanes = c.machine.f32_lanes() * (row ? row->k : 1);
  const double at_least = c.of_machine(p.flops() / 2 / lanes * c.machine.fma_cycles);
  if (at_least > bids.least()) return bids.refuse(fmt::format("takes {:.3g} cycles at least", at_least));
  offer_tiles(c, c.machine.wave > 1 ? p : p.with_near_rows().with_sharing_last(), bids);
}

void bid_batches(const Contraction& c, Bids& bids) {
  if (c.machine.wave > 1) return bids.refuse("a GPU");
  const std::optional<DotProblem> along = c.problem.along_batch();
  if (!along) return bids.refuse("no batch index lies number by number, or both operands have further indices");
  for (const size_t side : {0, 1})
    if (const DotLoad& l = along->loads[side];
        l.kind != DotLoad::Kind::memory || (l.scalar != Scalar::f32 && !along->are_whole()))
      return bids.refuse("an operand is neither f32 nor whole numbers in memory");
  offer_tiles(c, *along, bids);
}

}  // namespace lumen::synth
