// What takes the place of a device's kernels that compute wrongly. Proved by
// tests/run/engine/lone_steps/lone_steps_test.cpp.
#pragma once

#include "run/engine/lone_steps/lone_steps.h"

namespace lumen::run {

// The evaluator, on values in memory of the host. Done when launch() returns.
std::unique_ptr<LoadedSteps> evaluated_steps(std::function<void(std::span<void* const>)> evaluate);

// On copies of the device's values in memory of the host, as long as kernels take them to be. One at a time, and done
// when launch() returns.
std::unique_ptr<LoadedSteps> copied_steps(std::shared_ptr<Device> device, const synth::Synthesis& steps,
                                          std::unique_ptr<LoadedSteps> of_host);

}  // namespace lumen::run
