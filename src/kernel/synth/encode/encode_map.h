// Codes of one byte of what a map computes: where the map's values lie, transposed, or both, in one pass over what it
// reads. Equal to the codec bit for bit. Proved by tests/kernel/synth/synth_codes_test.cpp.
#pragma once

#include "kernel/synth/step/step.h"

namespace lumen::synth {

// A move group whose root is a cast, and which has the map below it (`codes` in graph/fuse/plan.h).
Synthesis encode_map(const graph::Plan& plan, const graph::Group& group, const machine::Machine& target);
bool has_map(const graph::Plan& plan, const graph::Group& group);

}  // namespace lumen::synth
