// Kernels that move numbers: gathers, scatters, updates, casts into formats, and copies.
#pragma once

#include "kernel/synth/step.h"

namespace lumen::synth {

Synthesis synthesize_move(const graph::Plan& plan, const graph::Group& group, const machine::Machine& target);

}  // namespace lumen::synth
