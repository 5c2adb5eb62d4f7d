// The counter-based generator of `random`, as a formula, so that kernels and fused maps reproduce the oracle bit for
// bit. Only 32-bit multiplications, additions, xors and shifts. Proved by tests/graph/ir/eval_test.cpp.
#pragma once

#include <cstdint>
#include <span>

#include "number/formula/formula.h"

namespace lumen::graph {

// Inputs (seed u32, low 32 bits of the element's row-major number u32) -> f32 in [0, 1).
// Equal to uniform_random(seed, salt, element) of eval.h for every element below 2^32.
Formula random_formula(uint32_t salt);

// The 32 random bits of which uniform_random takes the upper 24.
uint32_t random_bits(uint32_t seed, uint32_t salt, uint64_t element);

// out[i] = uniform_random(seed, salt, i); at most 2^32 numbers.
void uniform_randoms(uint32_t seed, uint32_t salt, std::span<float> out);

// The seed with which salt `with` generates the numbers of `seed` and `salt`, so that one kernel serves several salts.
uint32_t seed_as(uint32_t seed, uint32_t salt, uint32_t with);

}  // namespace lumen::graph
