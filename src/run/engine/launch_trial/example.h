// Kernels that no graph describes, on trial: launched once on numbers of which it is known what right kernels make of
// them, and held against that byte by byte. Proved by tests/run/engine/lone_steps/lone_steps_test.cpp.
#pragma once

#include "run/engine/launch_trial/launch_trial.h"

namespace lumen::run {

// Tries LoadedForm::example. Error where the device fails to launch it.
LaunchTrial try_example(const CompileContext& context, const LoadedForm& form);

}  // namespace lumen::run
