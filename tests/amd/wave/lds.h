// A work-group's shared memory, with who wrote and read what between which barriers.
#pragma once

#include <cstdint>
#include <vector>

namespace lumen::amd {

// Barriers order what waves do: an access of one wave is seen by another if its own wave waited for it and then arrived
// at a barrier that the other wave has passed. Kept for every two bytes.
class Lds {
 public:
  explicit Lds(int bytes);
  int bytes() const { return static_cast<int>(memory_.size()); }

  // Where the bytes lie. `wave` reads or writes them with `arrived` barriers arrived at and `passed` passed.
  const uint8_t* read(uint64_t address, int bytes, int wave, uint32_t arrived, uint32_t passed);
  uint8_t* write(uint64_t address, int bytes, int wave, uint32_t arrived, uint32_t passed);
  // An access that its wave had not waited for when it arrived at a barrier counts for the next one.
  void postpone(uint64_t address, int bytes, int wave, uint32_t arrived, bool writes);

  // What instructions take of its pace of 128 bytes a cycle, and what they would if no bank were asked twice at once:
  // accesses of one instruction, lane after lane. `may_cross`: reads of CDNA, whose lanes may be served in another
  // order.
  struct Place {
    int lane = 0;
    uint64_t address = 0;
  };
  void count_banks(const std::vector<Place>& places, int bytes, bool may_cross);
  struct Cycles {
    uint64_t all = 0, least = 0;
  };
  const Cycles& cycles() const { return cycles_; }

 private:
  static constexpr uint8_t kNobody = 0xff, kMany = 0xfe;
  struct Mark {
    uint32_t written = 0, read = 0;  // barriers arrived at before
    uint8_t writer = kNobody, reader = kNobody;
  };
  uint64_t check(uint64_t address, int bytes) const;
  std::vector<uint8_t> memory_;
  std::vector<Mark> marks_;
  Cycles cycles_;
};

}  // namespace lumen::amd
