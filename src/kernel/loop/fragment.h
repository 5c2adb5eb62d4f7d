// Where the elements of a matrix lie among the lanes that execute a matrix instruction together: the registers of all
// lanes, one lane behind the other, are a record, and a Layout (number/format/layout.h) says which bits of it are which
// element. Factors that an instruction reads from shared memory are described in the same way, with the bytes there as
// record.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "kernel/loop/loop.h"
#include "number/format/layout.h"

namespace lumen::loop {

// One digit of a row or column number: how many steps it has, and how many lanes and elements of a lane each step goes.
struct Digit {
  int extent = 1, lanes = 0, elements = 0;
};

struct Fragment {
  int rows = 1, columns = 1;
  int bits = 32;       // of an element
  int lane_bits = 32;  // of a lane's share, as its register type holds it; of shared memory: of all
  Layout layout;       // element row * columns + column, in bits of the record
  int copies = 1;      // lanes that hold the same: element e also lies copy * copy_bits further
  int64_t copy_bits = 0;
  // Swizzle of shared memory: 16 bytes at b lie at b ^ ((b >> 7) % swizzle) * 16; 0: where the layout says.
  int swizzle = 0;

  int64_t bit_of(int64_t element) const { return layout.pieces[0].bit_of(element); }
};

// A fragment in registers: the digits of the row number and of the column number, slowest first; `per_lane` elements of
// a lane.
Fragment fragment(int bits, int per_lane, const std::vector<Digit>& row, const std::vector<Digit>& column);

// A factor in shared memory: `row_bytes` from one row to the next, elements of a row beside each other.
Fragment shared_fragment(int bits, int rows, int columns, int64_t row_bytes, int swizzle);

// The same where rows lie beside each other: runs of `run_bytes` along rows, one after the other along columns; the
// next run of rows begins `next_bytes` further.
Fragment transposed_fragment(int bits, int rows, int columns, int64_t run_bytes, int64_t next_bytes, int swizzle);

// An instruction whose operands are spread over `lanes` lanes: result[m][n] = f(acc[m][n], a[m], b[n], ...).
struct Collective {
  enum class Side : uint8_t { acc, a, b };
  struct Operand {
    Side side = Side::acc;
    Fragment fragment = {};  // acc: m x n; a: m x what f takes of a row; b: n x the same of b
    bool in_memory = false;  // the operand is an offset in shared memory
  };
  int lanes = 32;
  int m = 16, n = 16;
  std::vector<Operand> operands;  // of the instruction, in order; the first is acc, and the result lies like it
};

}  // namespace lumen::loop
