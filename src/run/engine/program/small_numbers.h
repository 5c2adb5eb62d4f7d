// What operands hold while products are timed. Proved by tests/run/engine/random_inputs_test.cpp.
#pragma once

#include <cstdint>
#include <vector>

namespace lumen::run {

// Bytes that are small numbers of every type, codes of 8 bits among them, and never NaN or infinity; no two alike for
// long: what toggles takes time on GPUs. Those of even number have no top bit.
std::vector<uint8_t> small_numbers(int64_t bytes);

}  // namespace lumen::run
