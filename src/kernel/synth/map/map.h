// Elementwise kernels.
//
// May include: base, kernel/synth/body, kernel/synth/gemm/operand, kernel/synth/order, kernel/synth/step.
#pragma once

#include <optional>

#include "kernel/synth/step/step.h"

namespace lumen::synth {

// A load whose last axis is strided in memory, copied to a result of its shape by squares that are transposed in
// registers; nothing when another way is better.
std::optional<Synthesis> synthesize_transpose(const graph::Plan& plan, const graph::Group& group, graph::ValueId load,
                                              graph::ValueId result, const machine::Machine& target);

Synthesis synthesize_map(const graph::Plan& plan, const graph::Group& group, const machine::Machine& target);

}  // namespace lumen::synth
