// Many rows of activations in tasks, through dot instructions or the matrix unit: integers, or 16-bit floats.
#include "kernel/synth/gemm/bid/bid.h"
#include "kernel/synth/gemm/choose.h"
#include "kernel/synth/gemm/cpu/dot_matrix.h"

namespace lumen::synth {
namespace {

ProductSchedule schedule_of(const MatrixPlan& t, const DotProblem& p, const ProductSchedule& row) {
  ProductSchedule out = row.with(t, t.lanes(), p).with(t.row.row);
  if (t.lays_panels()) out.b = {ProductSchedule::Place::scratch, ProductSchedule::By::step};
  return out;
}

}  // namespace

void bid_matrix(const Contraction& c, Bids& bids) {
  std::string why;
  const auto add = [&](const DotProblem& p, const std::vector<MatrixPlan>& plans, bool without_codes) {
    for (const MatrixPlan& t : plans)
      bids.offer(
          schedule_of(t, p, bids.row()), describe_shape(p) + " " + describe(t),
          c.of_machine(t.cycles * (t.integers ? c.machine.costs.codes.product : 1)),
          [c, t, &p](Synthesis& out) { write_matrix_kernels(c.graph, p, t, c.machine, out); },
          without_codes && !t.integers);
    return !plans.empty();
  };
  const auto plans = choose_matrix(c.problem, c.machine, c.exact, &why);
  if (!why.empty()) bids.no_codes("integers: " + why);
  if (add(c.problem, plans, true)) return;
  // Operands that have the instruction's own type, in either storage order.
  std::string unused;
  if (add(c.plain, choose_matrix(c.plain, c.machine, c.exact, &unused), false)) return;
  bids.refuse(why.empty() ? "few rows, or no instruction multiplies their types" : why);
}

}  // namespace lumen::synth
