#include "run/engine/program/small_numbers.h"

#include <cstddef>

namespace lumen::run {

std::vector<uint8_t> small_numbers(int64_t bytes) {
  std::vector<uint8_t> out(bytes);
  uint32_t chance = 1;
  for (std::size_t i = 0; i < out.size(); ++i) {
    chance = chance * 1664525 + 1013904223;
    out[i] = i % 2 == 0 ? chance >> 24 & 0x77 : 0x3c | (chance >> 24 & 0x81);
  }
  return out;
}

}  // namespace lumen::run
