// What a wave is while it runs: registers, counters of memory under way, its place in the work-group.
#pragma once

#include <array>
#include <bit>
#include <cstdint>
#include <cstring>
#include <deque>
#include <memory>
#include <vector>

#include "tests/amd/chip.h"
#include "tests/amd/decode/instruction.h"
#include "tests/amd/wave/lds.h"
#include "tests/amd/wave/memory.h"

namespace lumen::amd {

constexpr int kMostLanes = 64;
constexpr uint32_t kUntouched = 0xffc0dead;  // what registers hold at the beginning: a NaN, a far address

// The resource that stands for private memory where it is reached as a buffer (gfx90a).
constexpr uint32_t kPrivateBuffer[4] = {0x5c4a7000, 0, 0x5c4a7002, 0x5c4a7003};

struct LdsAccess {
  uint32_t sequence;
  uint64_t address;
  int bytes;
  bool writes;
};

// A load of a wave straight into LDS that is under way: lane l writes `bytes` at `address` + l * bytes.
struct LdsCopy {
  uint32_t sequence;
  uint64_t address;
  int bytes;
  uint64_t lanes;
};

class Wave {
 public:
  Wave(const Chip& c, int lane_count, int number_in_group) : chip(c), lanes(lane_count), number(number_in_group) {
    pending_vector.fill({});
    pending_scalar.fill({});
    scalar.fill(kUntouched);
    vector = std::make_unique<std::array<std::array<uint32_t, kMostLanes>, kVectors>>();
  }

  const Chip& chip;
  int lanes, number;
  uint64_t place = 0;            // number of the next instruction
  uint64_t jump = ~uint64_t{0};  // a computed branch goes there, an address in memory
  bool ended = false, waits_at_barrier = false;
  uint32_t arrived = 0, passed = 0;  // barriers
  uint32_t mode = 0xf0;
  bool ieee = false;
  std::unique_ptr<std::array<std::array<uint32_t, kMostLanes>, kVectors>> vector;
  std::array<uint32_t, kScalars> scalar{};
  bool scc = false;
  Lds* lds = nullptr;
  bool counts_banks = false;
  std::vector<uint64_t> executed;  // how often, of each instruction of the code; empty: not counted
  Memory* memory = nullptr;
  std::vector<uint8_t> private_memory;  // of each lane, one behind the other
  int private_bytes = 0;
  int vectors = kVectors;  // allocated, without those of accumulation
  int index = 0;           // of registers, and of which operands (S_SET_GPR_IDX_ON)
  unsigned indexed = 0;
  uint64_t code_base = 0;  // added to an instruction's address

  uint64_t all() const { return lanes == 64 ? ~uint64_t{0} : (uint64_t{1} << lanes) - 1; }
  uint64_t exec() const { return wide(kExec) & all(); }
  void set_exec(uint64_t mask) { set_mask(kExec, mask); }
  uint64_t wide(int first) const { return scalar[first] | static_cast<uint64_t>(scalar[first + 1]) << 32; }
  void set_wide(int first, uint64_t value) {
    scalar[first] = static_cast<uint32_t>(value);
    scalar[first + 1] = static_cast<uint32_t>(value >> 32);
  }
  // One bit for each lane: a register, or two of them where waves have 64 lanes.
  uint64_t mask(int first) const { return lanes == 64 ? wide(first) : scalar[first]; }
  void set_mask(int first, uint64_t value) {
    if (first == kNull) return;
    scalar[first] = static_cast<uint32_t>(value);
    if (lanes == 64) scalar[first + 1] = static_cast<uint32_t>(value >> 32);
  }

  // ---- counters of memory operations. A register is pending until its operation is known to be complete.
  struct Pending {
    uint8_t counter = 0;
    uint32_t sequence = 0;  // 0: nothing is under way
  };
  std::array<Pending, kVectors> pending_vector;
  std::array<Pending, kScalars> pending_scalar;
  std::array<uint32_t, kCounters> issued{}, done{}, unordered{};  // the last one that may overtake others
  std::deque<LdsAccess> lds_accesses;
  std::deque<LdsCopy> lds_copies;  // by the counter of loads
  // Faults where these bytes of LDS are yet to come by one of them.
  void need_copied(uint64_t address, int size) const;
  bool under_way() const { return issued != done; }

  uint32_t issue(Counter counter, bool may_overtake = false) {
    const uint32_t n = ++issued[counter];
    if (may_overtake) unordered[counter] = n;
    return n;
  }
  void pend_vector(int first, int count, Counter counter, uint32_t sequence) {
    for (int i = 0; i < count; ++i) pending_vector[first + i] = {counter, sequence};
  }
  void pend_scalar(int first, int count, Counter counter, uint32_t sequence) {
    for (int i = 0; i < count; ++i) pending_scalar[first + i] = {counter, sequence};
  }
  void wait(Counter counter, int most);
  void arrive();  // at a barrier
};

// Which counter counts something on a chip: generation 9 and 11 share some.
Counter counter_of(const Chip& chip, Counter what);

// A work-group's waves until all have ended. Faults name the instruction.
struct Group {
  Lds lds;
  std::vector<Wave> waves;
};
void execute_group(Group& group, const std::vector<Instruction>& code, uint64_t* budget);

}  // namespace lumen::amd
