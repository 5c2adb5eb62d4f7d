// Kernels that belong to a format alone, for conversion tools and `format check`: x f32[rows, columns] -> blob, and
// back. With importance, value 2 holds it. Proved by tests/kernel/synth/synth_codec_test.cpp.
#pragma once

#include "kernel/synth/encode/encode.h"
#include "kernel/synth/step/step.h"

namespace lumen::synth {

Synthesis synthesize_encode(const Format& f, int64_t rows, int64_t columns, const machine::Machine& target,
                            Importance importance = Importance::none);
Synthesis synthesize_decode(const Format& f, int64_t rows, int64_t columns, const machine::Machine& target);

}  // namespace lumen::synth
