// Loads and stores by the numbers of their kinds: how many bytes, extended how, into which half.
#pragma once

#include <string>
#include <vector>

#include "tests/amd/execute/scalars.h"

namespace lumen::amd {

struct Access {
  int bytes = 4;
  bool sign = false;
  int half = 0;  // 1: the low half of a register, the other is kept; 2: the high one
  uint32_t number() const { return static_cast<uint32_t>(bytes | (sign ? 1 << 8 : 0) | half << 9); }
  static Access of(uint32_t n) { return {static_cast<int>(n & 0xff), (n >> 8 & 1) != 0, static_cast<int>(n >> 9 & 3)}; }
};
struct NamedAccess {
  std::string name;
  Access access;
};
// By the endings of names; generation 9 and later ones spell them differently.
std::vector<NamedAccess> load_accesses(bool generation9, bool lds);
std::vector<NamedAccess> store_accesses(bool generation9, bool lds);

// What was read of memory, into a lane's registers.
void put_loaded(Wave& w, const Operand& to, int lane, const Access& a, const uint8_t* from);
// The bytes that a lane stores.
void take_stored(const Wave& w, const Operand& from, int lane, const Access& a, uint8_t* to);

// An atomic operation on bytes in memory; what was there before comes back. Faults when it is not known.
using Atomic = uint64_t (*)(uint64_t old, uint64_t data, uint64_t compared);
struct NamedAtomic {
  std::string name;
  int bytes = 4;
  Atomic change = nullptr;
  bool compares = false;
};
const std::vector<NamedAtomic>& atomics();

}  // namespace lumen::amd
