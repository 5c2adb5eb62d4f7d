// Replacements for a device's kernels that compute wrongly. Proved by
// tests/run/engine/verify/lone_steps/lone_steps_test.cpp.
#pragma once

#include "run/engine/verify/lone_steps/lone_steps.h"

namespace lumen::run {

// The evaluator, on values in host memory. launch() is synchronous.
std::unique_ptr<LoadedSteps> evaluated_steps(std::function<void(std::span<void* const>)> evaluate);

// The CPU's steps on copies of the device's values in host memory, with the sizes that kernels assume. launch() is
// serialized and synchronous.
std::unique_ptr<LoadedSteps> copied_steps(std::shared_ptr<Device> device, const synth::Synthesis& steps,
                                          std::unique_ptr<LoadedSteps> of_host);

}  // namespace lumen::run
