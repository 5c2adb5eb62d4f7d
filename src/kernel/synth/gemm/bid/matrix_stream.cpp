// A weight that streams into the registers of matrix instructions beside few rows of activations: skinny GEMM on GPUs.
#include <fmt/format.h>

#include "kernel/synth/gemm/bid/bid.h"
#include "kernel/synth/gemm/choose.h"
#include "kernel/synth/gemm/skinny/dot_stream_matrix.h"

namespace lumen::synth {

void bid_matrix_stream(const Contraction& c, Bids& bids) {
  const std::vector<MatrixStreamPlan> plans = choose_matrix_streams(c.plain, c.machine, c.exact);
  if (plans.empty()) return bids.refuse("no weight beside a few rows, or no instruction for 16 of them");
  const machine::CostTable& costs = c.machine.costs;
  for (const MatrixStreamPlan& t : plans) {
    const MatrixStreamPlan& first = plans.front();
    if (t.waves_k != first.waves_k || t.row != first.row) continue;  // sums in another order
    const double unpacking = t.factor.kind == FactorForm::Kind::plain ? 0 : costs.streams.fragment;
    bids.offer(fmt::format("{} {}", describe_shape(c.plain), describe(t, c.plain)),
               c.streamed(unpacking + t.columns * costs.streams.fragment_row, true) + costs.streams.round,
               [c, t](Synthesis& out) { write_matrix_stream_kernels(c.graph, c.plain, t, c.machine, out); });
  }
}

}  // namespace lumen::synth
