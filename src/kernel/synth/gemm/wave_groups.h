// Work cut among the waves of a grid: one wave for each group of an outer index. Proved by
// tests/kernel/synth/gemm/dot_rows_test.cpp and tests/ladder.
#pragma once

#include <functional>

#include "kernel/synth/gemm/dot_write.h"

namespace lumen::synth {

// Work of a wave: `lane` is the lane in it, then its outer index and group. `exists` -1: always. Waves without a group
// of their own repeat the last one and must not write.
struct WaveGroup {
  Expr lane, outer, group, exists;
};

// The top loop of a kernel.
void each_wave(DotWriter& w, int64_t outer, int64_t groups, int wave,
               const std::function<void(const WaveGroup&)>& body);

// Writes `body` for the first lane of a wave that has a group of its own.
void once_per_wave(DotWriter& w, const WaveGroup& g, const std::function<void()>& body);

}  // namespace lumen::synth
