#include "tests/amd/wave/lds.h"

#include <algorithm>

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

}  // namespace lumen::amd
