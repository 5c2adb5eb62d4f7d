// Operand data for timing products. Proved by tests/run/engine/random_inputs_test.cpp.
#pragma once

#include <cstdint>
#include <vector>

namespace lumen::run {

// Bytes that are small numbers in every type, including 8-bit codes, and never NaN or infinity; they do not repeat for
// long, because toggling bits costs time on GPUs. Even-numbered bytes have a zero top bit.
std::vector<uint8_t> small_numbers(int64_t bytes);

}  // namespace lumen::run
