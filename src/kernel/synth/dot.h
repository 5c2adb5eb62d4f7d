// The door to dots: chooses between tiles, rows and integers, and writes the steps.
// Proved by tests/kernel/synth/gemm/dot_*_test.cpp.
#pragma once

#include "kernel/synth/step/step.h"

namespace lumen::synth {

Synthesis synthesize_dot(const graph::Plan& plan, const graph::Group& group, const machine::Machine& target,
                         const Options& options);

}  // namespace lumen::synth
