#include "tests/amd/wave/lds.h"

#include <algorithm>
#include <array>
#include <set>

#include "tests/amd/fault.h"

namespace lumen::amd {

// Nobody may rely on what is there at the beginning: as floats it is NaN.
Lds::Lds(int bytes) : memory_(static_cast<size_t>(bytes), 0xff), marks_(static_cast<size_t>(bytes + 1) / 2) {}

uint64_t Lds::check(uint64_t address, int bytes) const {
  if (address > memory_.size() || static_cast<uint64_t>(bytes) > memory_.size() - address)
    fault("{} bytes at {:#x} lie outside the LDS of {} bytes", bytes, address, memory_.size());
  return address;
}

const uint8_t* Lds::read(uint64_t address, int bytes, int wave, uint32_t arrived, uint32_t passed) {
  check(address, bytes);
  const auto me = static_cast<uint8_t>(wave);
  for (uint64_t i = address / 2; i <= (address + static_cast<uint64_t>(bytes) - 1) / 2; ++i) {
    Mark& m = marks_[i];
    if (m.writer != me && m.writer != kNobody && m.written >= passed)
      fault("wave {} reads LDS at {:#x} that wave {} writes, and no barrier behind a wait lies between", wave, 2 * i,
            m.writer);
    if (m.reader != me || m.read != arrived) {
      const bool shared = m.reader != kNobody && m.reader != me && m.read == arrived;
      if (m.read <= arrived || m.reader == kNobody) m.reader = shared ? kMany : me, m.read = arrived;
    }
  }
  return memory_.data() + address;
}

uint8_t* Lds::write(uint64_t address, int bytes, int wave, uint32_t arrived, uint32_t passed) {
  check(address, bytes);
  const auto me = static_cast<uint8_t>(wave);
  for (uint64_t i = address / 2; i <= (address + static_cast<uint64_t>(bytes) - 1) / 2; ++i) {
    Mark& m = marks_[i];
    if (m.reader != me && m.reader != kNobody && m.read >= passed)
      fault("wave {} writes LDS at {:#x} that {} read, and no barrier behind a wait lies between", wave, 2 * i,
            m.reader == kMany ? "other waves" : "wave " + std::to_string(m.reader));
    if (m.writer != me && m.writer != kNobody && m.written >= passed)
      fault("wave {} writes LDS at {:#x} that wave {} writes, and no barrier behind a wait lies between", wave, 2 * i,
            m.writer);
    m.writer = me, m.written = arrived;
  }
  return memory_.data() + address;
}

void Lds::postpone(uint64_t address, int bytes, int wave, uint32_t arrived, bool writes) {
  const auto me = static_cast<uint8_t>(wave);
  for (uint64_t i = address / 2; i <= (address + static_cast<uint64_t>(bytes) - 1) / 2; ++i) {
    Mark& m = marks_[i];
    if (writes && m.writer == me) m.written = std::max(m.written, arrived);
    if (!writes && (m.reader == me || m.reader == kMany)) m.read = std::max(m.read, arrived);
  }
}

namespace {

constexpr int kBanks = 32, kBankBytes = 4, kLanes = 64;

// The group in which a lane's access is served: 128 bytes at a time.
int in_order(int lane, int bytes) {
  return lane / std::max(1, kBanks * kBankBytes / bytes);
}
// Reads of 16 bytes on CDNA: four lanes with the four that lie sixteen further and change places with their neighbours.
int crossed(int lane, int bytes) {
  if (bytes != 16) return in_order(lane, bytes);
  const int quad = lane / 4 % 8;
  return lane / 32 * 4 + (quad < 4 ? quad : (quad - 4) ^ 1);
}

uint64_t cycles_of(const std::vector<Lds::Place>& places, int bytes, int (*group)(int lane, int bytes)) {
  std::array<std::array<std::set<uint64_t>, kBanks>, kLanes> words;
  for (const Lds::Place& p : places)
    for (int b = 0; b < bytes; b += kBankBytes) {
      const uint64_t word = (p.address + static_cast<uint64_t>(b)) / kBankBytes;
      words[static_cast<size_t>(group(p.lane, bytes))][word % kBanks].insert(word);
    }
  uint64_t all = 0;
  for (const auto& banks : words) {
    size_t most = 0;
    for (const auto& w : banks) most = std::max(most, w.size());
    all += most;
  }
  return all;
}

}  // namespace

// Which lanes are served together is not in the documents: of the two orders that are told of, the worse one counts.
void Lds::count_banks(const std::vector<Place>& places, int bytes, bool may_cross) {
  std::set<int> groups;
  for (const Place& p : places) groups.insert(in_order(p.lane, bytes));
  cycles_.least += groups.size();
  const uint64_t one = cycles_of(places, bytes, in_order);
  cycles_.all += may_cross ? std::max(one, cycles_of(places, bytes, crossed)) : one;
}

}  // namespace lumen::amd
