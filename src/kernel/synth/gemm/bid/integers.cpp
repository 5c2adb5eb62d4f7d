// Few rows of activations, quantized in groups, times a weight that factors into integers, by the machine's dots of
// bytes.
#include <fmt/format.h>

#include "kernel/synth/gemm/bid/bid.h"
#include "kernel/synth/gemm/choose.h"
#include "kernel/synth/gemm/cpu/dot_integer.h"

namespace lumen::synth {
namespace {

double cycles_of_integers(const Contraction& c, const IntegerDot& d) {
  const machine::CostTable& costs = c.machine.costs;
  if (c.machine.kind == machine::Kind::gpu) {
    const bool chooses = d.code_field >= 0 && d.table.empty();  // selects each number by itself
    const int bits = chooses ? c.problem.loads[1].format->fields[d.code_field].type.bits : 0;
    const double code = costs.streams.code + (chooses ? costs.streams.choice * (1 << bits) : 0);
    return c.streamed(code + c.problem.m.extent * costs.streams.code_row, false) + costs.blocks.launch;
  }
  const machine::CodeCosts& codes = costs.codes;
  const DotProblem& p = c.problem;
  const auto rows = static_cast<double>(p.m.extent), k = static_cast<double>(p.k.extent);
  // A product and an addition use different units; pairs need one more instruction, which waits for both.
  const double dot = d.row.pairs.empty() ? 1 : costs.panels.pairing;
  const double vectors = k / d.step(), groups = k / d.fine;
  const double row =
      vectors * (codes.integer + rows * codes.product * dot) + groups * rows * codes.group / 8 + codes.row * rows;
  const double outer = p.outer_extent();
  return outer * p.n.extent * row + p.rows_of_a() * k * codes.quantize + costs.tasks.small_launch;
}

}  // namespace

void bid_integers(const Contraction& c, Bids& bids) {
  if (c.exact && !keeps_codes(c.problem)) return bids.refuse("activations are to stay f32");
  if (!integer_possible(c.problem)) return bids.refuse("more rows than registers, or they do not lie along K");
  const DotLoad& b = c.problem.loads[1];
  std::string why;
  const auto d = factor_integer(*b.format, b.columns, c.machine, &why);
  if (!d) {
    bids.no_codes("integers: " + why);
    return bids.refuse(why);
  }
  const RowsPlan t = choose_rows(c.problem, c.machine, c.invariant, {}, 1);
  bids.offer(
      schedule_of_rows(bids.row(), t, c).with(d->row.row),
      fmt::format("{} rows {} {}", describe_shape(c.problem), t.height, d->row.row), cycles_of_integers(c, *d),
      [c, t, d](Synthesis& out) { write_integer_kernels(c.graph, c.problem, t, *d, c.machine, c.invariant, out); });
}

}  // namespace lumen::synth
