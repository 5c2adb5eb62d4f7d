// How the lanes of a wave load factors of a matrix instruction together (loop op `load_matrix`): which row of sixteen
// bytes each lane points at, so that every lane gets exactly its operand, in its order. One load brings four matrices
// of eight such rows: an operand of as many registers, or operands of adjacent instructions. Used by block_product.cpp.
// Proved by tests/kernel/synth/block_product_test.cpp.
#pragma once

#include <optional>

#include "kernel/loop/fragment.h"
#include "kernel/loop/names.h"
#include "kernel/machine/machine.h"

namespace lumen::synth {

struct FragmentLoads {
  static constexpr int kMatrices = 4, kRows = 8;
  static constexpr int64_t kRowBytes = 16;

  const machine::MatrixLoad* load = nullptr;
  int tiles = 1;  // instructions that one load feeds
  // Start of matrices 1 and 2 in the factor; 3 starts at the sum of both.
  struct Corner {
    int64_t row = 0, column = 0;
  };
  Corner one, two;

  // nullopt if the machine has no such load, or its matrices do not match the fragment. `transposed`: rows of the
  // factor are contiguous in memory.
  static std::optional<FragmentLoads> of(const machine::Machine& m, const loop::Fragment& factor, bool transposed);
  // The first row and the first column of the matrix whose rows a lane points at.
  Expr row(Expr lane_in_wave) const { return corner(lane_in_wave, one.row, two.row); }
  Expr column(Expr lane_in_wave) const { return corner(lane_in_wave, one.column, two.column); }

 private:
  static std::optional<FragmentLoads> of_fragment(const loop::Fragment& factor, bool transposed);  // of any machine
  static Expr corner(Expr lane, int64_t one, int64_t two) {
    const Expr matrix = lane / kRows;
    return matrix % 2 * one + matrix / 2 * two;
  }
};

}  // namespace lumen::synth
