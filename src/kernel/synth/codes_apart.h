// Splits a group of casts whose fields a kernel would compute for squares into the groups it stands for: reductions
// that find extremes, maps that compute fields from them, and casts that get the fields. For machines without waves,
// and squares that do not suit them. Proved by tests/kernel/synth/synth_codes_test.cpp.
#pragma once

#include "kernel/synth/step/step.h"

namespace lumen::synth {

// Whether a move group has such casts.
bool finds_fields(const graph::Plan& plan, const graph::Group& group);
Synthesis synthesize_apart(const graph::Plan& plan, const graph::Group& group, const machine::Machine& target);

}  // namespace lumen::synth
