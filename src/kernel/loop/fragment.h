// How the elements of a matrix are distributed over the lanes that execute a matrix instruction together: the registers
// of all lanes, concatenated, are a record, and a Layout (number/format/layout.h) maps bits of it to elements. Factors
// that an instruction reads from shared memory are described in the same way, with the bytes there as record.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "kernel/loop/loop.h"
#include "number/format/layout.h"

namespace lumen::loop {

// One digit of a row or column number: its extent, and its strides in lanes and in elements of a lane.
struct Digit {
  int extent = 1, lanes = 0, elements = 0;
};

struct Fragment {
  int rows = 1, columns = 1;
  int bits = 32;       // of an element
  int lane_bits = 32;  // of a lane's share, in its register type; in shared memory: of all
  Layout layout;       // element row * columns + column, in bits of the record
  int copies = 1;      // copies of each element; copy c of it is c * copy_bits further
  int64_t copy_bits = 0;
  // Swizzle of shared memory: the 16 bytes at b are stored at b ^ ((b >> 7) % swizzle) * 16; 0: no swizzle.
  int swizzle = 0;

  int64_t bit_of(int64_t element) const { return layout.pieces[0].bit_of(element); }
};

// A fragment in registers: the digits of the row number and of the column number, slowest first; `per_lane` elements
// per lane.
Fragment fragment(int bits, int per_lane, const std::vector<Digit>& row, const std::vector<Digit>& column);

// A factor in shared memory, row-major: rows are `row_bytes` apart, the elements of a row contiguous.
Fragment shared_fragment(int bits, int rows, int columns, int64_t row_bytes, int swizzle);

// The same, column-major: runs of `run_bytes` along rows, consecutive along columns; the next run of rows begins
// `next_bytes` further.
Fragment transposed_fragment(int bits, int rows, int columns, int64_t run_bytes, int64_t next_bytes, int swizzle);

// An instruction whose operands are spread over `lanes` lanes: result[m][n] = f(acc[m][n], a[m], b[n], ...).
struct Collective {
  enum class Side : uint8_t { acc, a, b };
  struct Operand {
    Side side = Side::acc;
    Fragment fragment = {};  // acc: m x n; a: m x the elements f reads of a row; b: n x the same of b
    bool in_memory = false;  // the operand is an offset in shared memory
  };
  int lanes = 32;
  int m = 16, n = 16;
  std::vector<Operand> operands;  // of the instruction, in order; the first is acc, the result has its fragment
};

}  // namespace lumen::loop
