// The step before a matrix kernel: rows of a as the dot instruction takes them, in scratch. Integers come with one
// scale per scale group and the sums of codes that biases and offsets of the weight need; 16-bit floats are rounded to
// nearest even. Proved by tests/kernel/synth/gemm/dot_matrix_test.cpp.
#pragma once

#include "kernel/synth/gemm/cpu/dot_matrix_plan.h"
#include "kernel/synth/step/step.h"

namespace lumen::synth {

// Scratch, row by row of (outer indices, m); everything beyond the last element of a row is zero. For the matrix unit
// codes lie tile by tile: rows in blocks, within them pieces of a tile's bytes along K, row after row.
struct LeftLayout {
  int64_t rows = 1;
  int64_t row_bytes = 0;  // of codes: a cache line more than the row, so that rows do not fall into one set
  int64_t scales = 0;     // f32 per row, 0: none
  int64_t starts = 0;     // i32 per row: bias times the sum of the codes of a group
  int64_t sums = 0;       // f32 per row: sum of the codes of a group
  int64_t padded_m = 1;   // rows per outer index, or all rows of blocks
  int64_t code_bytes() const { return rows * row_bytes; }
};
LeftLayout left_layout(const DotProblem& p, const MatrixPlan& t);

// Scratch numbers; -1 where the layout has none.
struct LeftScratch {
  int codes = -1, scales = -1, starts = -1, sums = -1;
};
// Adds the scratch buffers and the step.
LeftScratch write_left_step(const graph::Graph& g, const DotProblem& p, const MatrixPlan& t, const machine::Machine& m,
                            Synthesis& out);

}  // namespace lumen::synth
