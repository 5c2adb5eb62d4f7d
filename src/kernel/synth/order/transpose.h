// Square transposes in registers. Proved by tests/kernel/synth/synth_move_test.cpp.
#pragma once

#include <vector>

#include "kernel/loop/names.h"

namespace lumen::synth {

// As many vectors as each has lanes, a power of two: lane l of vector k becomes lane k of vector l. In stage s, vectors
// s apart swap halves of runs of s lanes. A lane may be a word of several numbers.
inline void transpose(Builder& b, std::vector<Expr>& tile, int word = 1) {
  const int lanes = tile.size();
  const auto numbers = [&](const std::vector<int>& words) {
    std::vector<int> out;
    for (const int w : words)
      for (int i = 0; i < word; ++i) out.push_back(w * word + i);
    return out;
  };
  for (int s = lanes / 2; s >= 1; s /= 2) {
    for (int i = 0; i < lanes; ++i) {
      if (i & s) continue;
      std::vector<int> low, high;
      for (int l = 0; l < lanes; ++l) {
        low.push_back(l & s ? lanes + (l ^ s) : l);
        high.push_back(l & s ? lanes + l : l ^ s);
      }
      const Expr a = tile[i], c = tile[i + s];
      tile[i] = b.shuffle({a, c}, numbers(low));
      tile[i + s] = b.shuffle({a, c}, numbers(high));
    }
  }
}

}  // namespace lumen::synth
