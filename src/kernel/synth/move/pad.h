// Zeros around and between the elements of a value, in one pass: each number of the result is written once.
#pragma once

#include <optional>

#include "kernel/synth/step/step.h"

namespace lumen::synth {

// The step of a group whose root is a pad. nullopt if it reads blocks of a format, or its rows are not within rows of
// the result.
std::optional<Step> synthesize_pad(const graph::Plan& plan, const graph::Group& group, const machine::Machine& target);

}  // namespace lumen::synth
