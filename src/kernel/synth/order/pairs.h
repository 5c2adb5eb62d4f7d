// Numbers two by two: lanes of two vectors by turns, and vectors of f32 that are rounded together. Proved by
// tests/kernel/synth/gemm/dot_matrix_test.cpp and tests/kernel/synth/attention/synth_attend_test.cpp.
#pragma once

#include <fmt/format.h>

#include <string>
#include <vector>

#include "kernel/machine/machine.h"

namespace lumen::synth {

// A shuffle's mask: lanes first, second, first + 1, second + 1, .. of two vectors one behind the other, `run` of each.
inline std::vector<int> by_turns(int first, int second, int run) {
  std::vector<int> mask;
  for (int i = 0; i < run; ++i)
    for (const int begin : {first, second}) mask.push_back(begin + i);
  return mask;
}

// The machine's row that rounds two vectors of so many f32 lanes to a 16-bit float at once, the one above first; empty:
// it has none. Numbers that are not normal become zero, as its products of that type take them.
inline std::string round_pair_row(const machine::Machine& m, Scalar to, int64_t lanes) {
  const std::string row = fmt::format("roundpair.f32f32.{}x{}", scalar_name(to), 2 * lanes);
  return m.find_row(row) ? row : "";
}

}  // namespace lumen::synth
