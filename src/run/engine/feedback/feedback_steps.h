// The kernel of a panel for the engine to load, with an example of its expected result. Proved by
// tests/run/engine/verify/lone_steps/lone_steps_test.cpp.
#pragma once

#include "kernel/synth/encode/feedback.h"
#include "run/engine/verify/lone_steps/lone_steps.h"

namespace lumen::run {

LoneSteps feedback_steps(const FormatRef& f, const synth::FeedbackShape& shape);

}  // namespace lumen::run
