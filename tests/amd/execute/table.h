// How operations enter the table: plain functions of numbers, or functions of a wave and an instruction.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "tests/amd/decode/operation.h"
#include "tests/amd/execute/lanes.h"

namespace lumen::amd {

// The result in front, the sources behind; every lane for itself.
template <class F>
Operation lanes_of(F) {
  using C = Called<decltype(&F::operator())>;
  return {.run = &C::template run<F, false>, .types = C::types()};
}
// The last source is what the result's register holds.
template <class F>
Operation accumulating(F) {
  using C = Called<decltype(&F::operator())>;
  return {.run = &C::template run<F, true>, .types = C::types(), .accumulates = true};
}

void add_float_operations(Operations& t);
void add_division(Operations& t);
void add_integer_operations(Operations& t);
void add_conversions(const Chip& chip, Operations& t);
void add_small_float_conversions(const Chip& chip, Operations& t);
void add_carries(Operations& t);
void add_comparisons(const Chip& chip, Operations& t);
void add_packed(Operations& t);
void add_lane_moves(const Chip& chip, Operations& t);
void add_matrix_operations(const Chip& chip, Operations& t);
void add_scalar_operations(Operations& t);
void add_scalar_floats(Operations& t);
void add_control(const Chip& chip, Operations& t);
void add_global_memory(const Chip& chip, Operations& t);
void add_lds(const Chip& chip, Operations& t);

}  // namespace lumen::amd
