#include "kernel/synth/dot.h"

#include "kernel/synth/choose.h"
#include "kernel/synth/dot_tile.h"

namespace lumen::synth {

Synthesis synthesize_dot(const graph::Plan& plan, const graph::Group& group, const machine::Machine& target,
                         const Options& options) {
  const DotProblem p = normalise_dot(plan.graph, group);
  Synthesis out;
  out.steps.push_back(write_tile_kernel(plan.graph, p, choose_tile(p, target)));
  return out;
}

}  // namespace lumen::synth
