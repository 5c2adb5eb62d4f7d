// Copies operands into panels: dense f32 rows in private memory, straight, transposed or gathered, unpacking formats on
// the way. Proved by tests/kernel/synth/gemm/dot_tile_test.cpp and dot_format_test.cpp.
#pragma once

#include "kernel/synth/gemm/dot_write.h"

namespace lumen::synth {

// Rows of contiguous elements (unit stride along a row).
struct RowSource {
  size_t load = 0;
  Expr first;              // element of row 0, column 0
  int64_t row_stride = 0;  // elements
};

struct Panel {
  BufferId buffer = -1;
  Expr start;  // byte of row 0
  int64_t row_bytes = 0;
};

// Copies rows x columns. Packed operands are unpacked block by block.
void copy_rows(DotWriter& w, const DotProblem& p, const RowSource& from, Expr rows, Expr columns, const Panel& to,
               int lanes);

// Elements unpacked at once by straight-line code: whole blocks, and whole vectors if that stays short.
int64_t unpack_unit(const Format& f, int lanes);

}  // namespace lumen::synth
