// Matrix instructions that no kernel's plan has: one wave executes each once, against its meaning, so that the table of
// a machine holds nothing that was never tried there. Proved by tests/amd/faults_test.cpp and the ladder.
#pragma once

#include "run/engine/trial/soundness.h"

namespace lumen::run {

// Numbers whose signs and sizes differ from lane to lane; never throws for what a device lacks.
CheckLine try_row(const CompileContext& context, const machine::MatrixRow& row);
// Those that none of its lines has and that take their factors from registers. What computes wrongly, or cannot be
// run, is refused.
void try_other_rows(const CompileContext& context, Soundness* found);

}  // namespace lumen::run
