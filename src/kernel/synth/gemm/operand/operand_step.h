// The step that writes rows of a as a layout says. Proved by tests/kernel/synth/gemm/operand_step_test.cpp.
#pragma once

#include "kernel/synth/gemm/operand/operand_layout.h"

namespace lumen::synth {

// Declares the scratch and adds the step. Ordered rows are f32 in memory, one element behind the other; natural ones
// may be any load of the problem. Rows of codes (coded_rows.h), whole groups of scales, keep theirs.
OperandScratch write_operand_step(const graph::Graph& g, const DotProblem& p, const OperandLayout& layout,
                                  const machine::Machine& m, Synthesis& out);

}  // namespace lumen::synth
