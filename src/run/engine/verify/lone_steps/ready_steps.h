// Steps of a synthesis with their machine code, for the device they were made for. Proved by
// tests/run/engine/convert_test.cpp.
#pragma once

#include "run/engine/verify/lone_steps/lone_steps.h"

namespace lumen::run {

std::unique_ptr<LoadedSteps> ready_steps(const CompileContext& context, const Synthesized& steps,
                                         CompileReport* report);

}  // namespace lumen::run
