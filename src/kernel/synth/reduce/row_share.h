// How the rows of a reduction are distributed on machines with waves: a wave each, some lanes of one if rows are short,
// or waves of a block if rows are few, or longer than the registers of one wave. Proved by
// tests/kernel/synth/synth_reduce_test.cpp.
#pragma once

#include <string>

#include "kernel/machine/machine.h"
#include "kernel/synth/reduce/row_passes.h"

namespace lumen::synth {

struct RowShare {
  int lanes = 0;           // of a wave, that share a row; 0: one thread has it
  int waves = 1;           // of a block, that share a row
  int rows = 1;            // of a block: one for each group of lanes
  int ways = 1;            // vectors of a lane at once
  RowPasses::Values held;  // by lanes, in registers

  int64_t sharing() const { return int64_t{lanes} * waves; }
  std::string text(int wave) const;
};

// `length` numbers of each of `rows` rows, `vector` per load; `packed`: a lane has a run, because formats unpack runs.
struct RowsShape {
  int64_t rows = 1, length = 1;
  int vector = 1;
  bool packed = false;
};
RowShare share_rows(const RowsShape& shape, const RowPasses& passes, Split split, const machine::Machine& m);

}  // namespace lumen::synth
