// Trials of matrix instructions that no kernel's plan uses: one wave executes each once, against its semantics, so that
// every row of a machine's table is tested. Proved by tests/amd/faults_test.cpp and the ladder.
#pragma once

#include "run/engine/verify/trial/soundness.h"

namespace lumen::run {

// Numbers whose signs and magnitudes differ between lanes; never throws for a device's shortcomings.
CheckLine try_row(const CompileContext& context, const machine::MatrixRow& row);
// Tries the rows that no trial used and that take their factors from registers. Rows that compute wrongly, or cannot
// run, are refused.
void try_other_rows(const CompileContext& context, Soundness* found);

}  // namespace lumen::run
