// Plans for few rows of a times a packed weight on machines with thread blocks: vectors of the weight's rows stream
// through shared memory as they lie in memory, several stages in flight, and lanes unpack units of whole blocks of the
// format from it. Proved by tests/kernel/synth/gemm/skinny_dot_test.cpp.
#pragma once

#include <cmath>
#include <optional>
#include <string>
#include <vector>

#include "kernel/synth/gemm/dot_problem.h"
#include "kernel/synth/order/factor.h"
#include "kernel/synth/order/stream_codes.h"
#include "kernel/synth/unpack/pair_table.h"

namespace lumen::synth {

// A block of `waves` waves owns waves * rows * width rows of b. Lane (row, column) of a wave has `width` consecutive
// rows, and of a stage of K the units column, column + columns, ..: `deep` of them.
struct SkinnyDotPlan {
  int waves = 1, rows = 1, columns = 1, width = 1, deep = 1, buffers = 2;
  int64_t unit_blocks = 1, unit = 32;  // blocks and elements a lane unpacks at once
  int64_t unit_bytes = 0;              // of b
  int64_t units = 0;                   // of a row
  int64_t vector = 16;                 // bytes of one copy
  int64_t row_bytes = 0, pitch = 0;    // of a row in memory; from row to row of a stage in shared memory
  std::optional<IntegerDot> integers;  // products of codes, activations in 8 bits; else f32
  std::optional<ScaledForm> scaled;    // f32: the factor, and the scale of its sums
  // Four-bit codes whose numbers are looked up in pairs, as two f16 or, of integers, two bytes; no values: no table.
  PairTable::Shape pairs;
  bool rounds = false;  // the numbers are not exact in f16
  struct Pair {
    int64_t byte = 0, low = 0, high = 0;  // of a unit, and the elements of its codes
  };
  std::vector<Pair> pair_order;      // by byte
  LaneOrder order;                   // of a unit's codes: integers and pairs
  std::optional<StreamCodes> codes;  // of integers, if their bits allow it
  int64_t share = 4;                 // activations a lane lays out at once, in the order of the codes
  int64_t shared_bytes = 0;
  int64_t blocks = 1;  // running at once: each has tile after tile of rows

  int lanes(int wave) const { return waves * wave; }
  int64_t wave_rows() const { return int64_t{rows} * width; }
  int64_t block_rows() const { return int64_t{waves} * rows * width; }
  int64_t stage_units() const { return int64_t{columns} * deep; }
  int64_t stages() const { return (units + stage_units() - 1) / stage_units(); }
  int64_t stage_bytes() const { return block_rows() * pitch; }
  // Whether units begin at whole words.
  bool aligned() const { return unit_bytes % 4 == 0 && pitch % 4 == 0; }
  bool looks_up_pairs() const { return !pairs.values.empty(); }
  int64_t pair_bytes() const { return pairs.size(); }
  int64_t laid_units() const { return stages() * stage_units(); }
  // Integers: sums of products are in units of `step`, and every element exceeds its code by `bias`.
  double step() const { return codes ? std::ldexp(codes->step, codes->least) : 1; }
  double bias() const { return codes ? codes->step * codes->bias : integers->bias; }
};

// The model's choice first, then other candidates to measure; empty if the operands are not laid out as required.
std::vector<SkinnyDotPlan> choose_skinny_dots(const DotProblem& p, const machine::Machine& m, bool exact,
                                              std::string* why);

std::string describe(const SkinnyDotPlan& t, const DotProblem& p);

}  // namespace lumen::synth
