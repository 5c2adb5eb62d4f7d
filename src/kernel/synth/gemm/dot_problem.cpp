#include "kernel/synth/gemm/dot_problem.h"

#include <numeric>

namespace lumen::synth {

DotProblem normalise_dot(const graph::Plan& plan, const graph::Group& group) {
  const graph::DotGroup dot = graph::read_dot(plan, group);
  DotProblem p{dot, {}, {}, {}};
  for (const graph::DotSource& source : dot.sources) p.loads.push_back({source, -1, {}});
  return p;
}

DotProblem DotProblem::only_a() const {
  DotProblem p = *this;
  if (blocks) {  // one row after the other, of whatever block
    p.outer.clear();
    p.m.extent = blocks->rows;
  }
  p.loads.resize(1);
  p.pick.reset();
  p.blocks.reset();
  p.runs.reset();
  p.epilogue.clear();
  p.row_scales.clear();
  p.run_scales = {};
  p.result = -1;
  return p;
}

int64_t DotProblem::run_k() const {
  int64_t run = 0;
  for (const auto& scales : run_scales)
    if (scales) run = std::gcd(run, scales->run);
  return run;
}

double DotProblem::flops() const {
  const double all = 2.0 * outer_extent() * m.extent * n.extent * k_total();
  if (runs) return all / pick->count;
  if (!blocks) return all;
  return all * pick->row_count() / (blocks->blocks * m.extent);
}

}  // namespace lumen::synth
