// Kernels that move numbers: gathers, scatters, updates, casts into formats, and copies.
//
// May include: base, kernel/synth/body, kernel/synth/encode, kernel/synth/map, kernel/synth/reduce, kernel/synth/step.
#pragma once

#include "kernel/synth/step/step.h"

namespace lumen::synth {

Synthesis synthesize_move(const graph::Plan& plan, const graph::Group& group, const machine::Machine& target);

}  // namespace lumen::synth
