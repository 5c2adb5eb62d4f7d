// Transposes through registers. Proved by tests/kernel/synth/synth_move_test.cpp.
#pragma once

#include <optional>

#include "kernel/synth/step/step.h"

namespace lumen::synth {

// A load whose last axis is strided in memory, copied to a result of its shape by squares; nothing when another way is
// better.
std::optional<Synthesis> synthesize_transpose(const graph::Plan& plan, const graph::Group& group, graph::ValueId load,
                                              graph::ValueId result, const machine::Machine& target);

}  // namespace lumen::synth
