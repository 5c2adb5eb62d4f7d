// The step that writes rows of a in a layout. Proved by tests/kernel/synth/gemm/operand_step_test.cpp.
#pragma once

#include "kernel/synth/gemm/operand/operand_layout.h"

namespace lumen::synth {

// Declares the scratch and adds the step. Rows to reorder must be contiguous f32 in memory; rows in natural order may
// be any load of the problem. Rows of codes (coded_rows.h), in whole groups of scales, keep their codes.
OperandScratch write_operand_step(const graph::Graph& g, const DotProblem& p, const OperandLayout& layout,
                                  const machine::Machine& m, Synthesis& out);

}  // namespace lumen::synth
