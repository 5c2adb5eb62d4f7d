// Copies. Proved by tests/kernel/synth/synth_move_test.cpp.
#pragma once

#include "kernel/synth/step/step.h"

namespace lumen::synth {

// A load of the group, written densely as f32 into a scratch buffer.
Step copy_to_scratch(const graph::Plan& plan, const graph::Group& group, graph::ValueId v, int scratch,
                     const machine::Machine& target);

}  // namespace lumen::synth
