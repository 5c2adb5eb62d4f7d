// scatter_add with many lanes: the values' numbers are sorted by their target row, stably, and each row of the result
// adds its values in their order. Long lists are split into pieces by their sorted position, so that the order of every
// sum depends on the indices alone. Proved by tests/kernel/synth/synth_scatter_test.cpp.
#pragma once

#include <optional>

#include "kernel/synth/step/step.h"

namespace lumen::synth {

// nullopt if rows are few, values are not numbers in memory, or the machine has no waves.
std::optional<Synthesis> scatter_by_rows(const graph::Plan& plan, const graph::Group& group,
                                         const machine::Machine& target);

}  // namespace lumen::synth
