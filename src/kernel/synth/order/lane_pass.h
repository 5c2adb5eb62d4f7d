// All-to-all exchange: of a power of two of lanes `stride` apart, each has an item for every lane, and gets every
// lane's item for itself, so that data contiguous in memory is written by one lane, or by adjacent lanes at once.
// Proved by tests/kernel/synth/gemm/block_write_test.cpp and dot_block_test.cpp.
#pragma once

#include <vector>

#include "kernel/loop/names.h"

namespace lumen::synth {

// In a lane loop, by all lanes of a wave. `number`: this lane's among as many as there are items. Item i of the result
// is the one that lane i had for this lane. Items are words of one type, as of as_words.
std::vector<Expr> pass_among_lanes(Builder& b, Expr number, int stride, std::vector<Expr> items);
// The bits of numbers, 2 or a multiple of 4 bytes, in u16 or u32; and items concatenated to one value.
Expr as_words(Builder& b, Expr x);
Expr beside_each_other(Builder& b, const std::vector<Expr>& items);

}  // namespace lumen::synth
