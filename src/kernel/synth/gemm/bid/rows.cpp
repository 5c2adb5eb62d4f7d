// Few rows of activations along K in f32, times rows of the weight, which are unpacked if packed; or codes in dot
// instructions.
#include <utility>

#include "kernel/synth/gemm/bid/bid.h"
#include "kernel/synth/gemm/choose.h"
#include "kernel/synth/gemm/code_words.h"
#include "kernel/synth/gemm/cpu/dot_rows.h"

namespace lumen::synth {

namespace {

constexpr double kTogether = 32;  // lanes that load at once

double cycles_of_rows(const Contraction& c, const RowsPlan& t) {
  if (c.machine.kind == machine::Kind::cpu) return t.cycles;
  const machine::StreamCosts& costs = c.machine.costs.streams;
  const bool packed =
      c.problem.loads[1].kind == DotLoad::Kind::packed && c.plain.loads[1].kind != DotLoad::Kind::memory;
  // Lanes wait for their loads, one run of vectors after the other.
  const double waiting = costs.stage * c.problem.k.extent / (t.lanes * kTogether);
  return c.streamed((packed ? 3 * costs.number : 0) + t.height * costs.element, false) + waiting;
}

}  // namespace

void bid_rows(const Contraction& c, Bids& bids) {
  const std::optional<CodesDot> row = dot_of_codes(c.problem, c.machine);
  const bool possible = row ? c.problem.m.extent <= kRowsAlongK && c.problem.outer_k.empty() : rows_possible(c.problem);
  if (!possible) return bids.refuse("more rows than registers, or they do not lie along K");
  const RowsPlan t = choose_rows(c.problem, c.machine, c.invariant, row);
  ProductSchedule schedule = schedule_of_rows(bids.row(), t, c).with(row ? row->row : "f32 fma");
  if (c.problem.loads[1].kind == DotLoad::Kind::packed) schedule.b.by = ProductSchedule::By::product;
  bids.offer(
      std::move(schedule), describe_shape(c.problem) + " " + describe(t), cycles_of_rows(c, t),
      [c, t](Synthesis& out) { out.steps.push_back(write_rows_kernel(c.graph, c.problem, t, c.machine)); }, true);
}

}  // namespace lumen::synth
