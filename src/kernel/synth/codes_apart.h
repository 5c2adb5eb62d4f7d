// A group of casts whose fields a kernel would find in squares, as the groups it stands for: reductions that find
// extremes, maps that make fields of them, and casts that are supplied. For machines without waves, and squares that do
// not suit them. Proved by tests/kernel/synth/synth_codes_test.cpp.
#pragma once

#include "kernel/synth/step/step.h"

namespace lumen::synth {

// Whether a move group has such casts.
bool finds_fields(const graph::Plan& plan, const graph::Group& group);
Synthesis synthesize_apart(const graph::Plan& plan, const graph::Group& group, const machine::Machine& target);

}  // namespace lumen::synth
