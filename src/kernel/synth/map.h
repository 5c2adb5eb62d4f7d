// Elementwise kernels.
#pragma once

#include "kernel/synth/step.h"

namespace lumen::synth {

Synthesis synthesize_map(const graph::Plan& plan, const graph::Group& group, const machine::Machine& target);

}  // namespace lumen::synth
