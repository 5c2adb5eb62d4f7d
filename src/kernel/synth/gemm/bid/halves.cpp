// Few rows of activations, rounded to 16 bits, times a weight whose numbers come from lookup tables, by the machine's
// dots of pairs.
#include <fmt/format.h>

#include "kernel/synth/gemm/bid/bid.h"
#include "kernel/synth/gemm/choose.h"
#include "kernel/synth/gemm/cpu/dot_integer.h"
#include "kernel/synth/gemm/cpu/dot_short.h"

namespace lumen::synth {
namespace {

double cycles_of_halves(const Contraction& c, const ShortDot& d) {
  const machine::CodeCosts& codes = c.machine.costs.codes;
  const DotProblem& p = c.problem;
  const auto rows = static_cast<double>(p.m.extent), k = static_cast<double>(p.k.extent);
  const double vectors = k / (d.row.lanes * d.row.k);
  const double row = vectors * (codes.looked_up / 2 * d.parts.size() + rows * codes.product) +
                     (d.whole_rows ? 0 : k / d.form.group * rows * codes.group / 8) + codes.row * rows;
  return p.outer_extent() * static_cast<double>(p.n.extent) * row + p.rows_of_a() * k * codes.quantize +
         c.machine.costs.tasks.small_launch;
}

}  // namespace

void bid_halves(const Contraction& c, Bids& bids) {
  if (c.exact) return bids.refuse("activations are to stay f32");
  if (c.machine.wave > 1) return bids.refuse("lanes of a wave have no dots of pairs");
  if (!integer_possible(c.problem)) return bids.refuse("more rows than registers, or they do not lie along K");
  std::string why;
  const auto d = factor_short(*c.problem.loads[1].format, c.machine, &why);
  if (!d) {
    bids.no_codes("short floats: " + why);
    return bids.refuse(why);
  }
  const RowsPlan t = choose_rows(c.problem, c.machine, c.invariant, {}, 2);
  bids.offer(
      schedule_of_rows(bids.row(), t, c).with(d->row.row),
      fmt::format("{} rows {} {}", describe_shape(c.problem), t.height, d->row.row), cycles_of_halves(c, *d),
      [c, t, d = *d](Synthesis& out) { write_short_kernels(c.graph, c.problem, t, d, c.machine, c.invariant, out); },
      true);
}

}  // namespace lumen::synth
