// Trials of kernels without a graph: launched once on inputs with known results, and compared byte by byte. Proved by
// tests/run/engine/verify/lone_steps/lone_steps_test.cpp.
#pragma once

#include "run/engine/verify/launch_trial/launch_trial.h"

namespace lumen::run {

// Tries LoadedForm::example. Error if the device fails to launch it.
LaunchTrial try_example(const CompileContext& context, const LoadedForm& form);

}  // namespace lumen::run
