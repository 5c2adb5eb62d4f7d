// Numbers in pairs: interleaved lanes of two vectors, rows whose sums alternate, and vectors of f32 that are rounded
// together. Proved by tests/kernel/synth/gemm/dot_matrix_test.cpp and
// tests/kernel/synth/attention/synth_attend_test.cpp.
#pragma once

#include <fmt/format.h>

#include <string>
#include <vector>

#include "kernel/loop/names.h"
#include "kernel/machine/machine.h"

namespace lumen::synth {

// A shuffle's mask that interleaves: lanes first, second, first + 1, second + 1, .. of two concatenated vectors, `run`
// of each.
inline std::vector<int> by_turns(int first, int second, int run) {
  std::vector<int> mask;
  for (int i = 0; i < run; ++i)
    for (const int begin : {first, second}) mask.push_back(begin + i);
  return mask;
}

// Vectors of sums, `vectors` for each row: interleaves the sums of every two rows, the first half of the columns in the
// upper row's vectors, the second half in the lower row's (Machine::squares), and back.
inline void join_rows_by_two(Builder& b, std::vector<Expr>& sums, size_t vectors) {
  for (size_t row = 0; row + vectors < sums.size(); row += 2 * vectors)
    for (size_t at = row; at < row + vectors; ++at) {
      Expr &above = sums[at], &below = sums[at + vectors];
      const int lanes = b.type(above).lanes;
      const std::vector<Expr> rows{above, below};
      above = b.shuffle(rows, by_turns(0, lanes, lanes / 2));
      below = b.shuffle(rows, by_turns(lanes / 2, lanes + lanes / 2, lanes / 2));
    }
}
inline void part_rows_by_two(Builder& b, std::vector<Expr>& sums, size_t vectors) {
  for (size_t row = 0; row + vectors < sums.size(); row += 2 * vectors)
    for (size_t at = row; at < row + vectors; ++at) {
      const std::vector<Expr> halves{sums[at], sums[at + vectors]};
      std::vector<int> even, odd;
      for (int lane = 0; lane < 2 * b.type(halves[0]).lanes; ++lane) (lane % 2 == 0 ? even : odd).push_back(lane);
      sums[at] = b.shuffle(halves, even);
      sums[at + vectors] = b.shuffle(halves, odd);
    }
}

// The machine's row that rounds two vectors of `lanes` f32 lanes to a 16-bit float at once, the upper one first; empty
// if it has none. Subnormals are flushed to zero, as in its products of that type.
inline std::string round_pair_row(const machine::Machine& m, Scalar to, int64_t lanes) {
  const std::string row = fmt::format("roundpair.f32f32.{}x{}", scalar_name(to), 2 * lanes);
  return m.find_row(row) ? row : "";
}

}  // namespace lumen::synth
