// Conversions of matrices into and out of a format: value 0 is read, value 1 is written, value 2 (if any) holds the
// importance. Proved by tests/run/engine/verify/lone_steps/lone_steps_test.cpp.
#pragma once

#include "kernel/synth/encode/convert.h"
#include "number/format/format.h"
#include "run/engine/verify/lone_steps/lone_steps.h"

namespace lumen::run {

LoneSteps encode_steps(const FormatRef& f, int64_t rows, int64_t columns, synth::Importance importance);
LoneSteps decode_steps(const FormatRef& f, int64_t rows, int64_t columns);

}  // namespace lumen::run
