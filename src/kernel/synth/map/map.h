// Elementwise kernels.
//
// May include: base, kernel/synth/body, kernel/synth/gemm/operand, kernel/synth/order, kernel/synth/step.
#pragma once

#include "kernel/synth/step/step.h"

namespace lumen::synth {

Synthesis synthesize_map(const graph::Plan& plan, const graph::Group& group, const machine::Machine& target);

}  // namespace lumen::synth
