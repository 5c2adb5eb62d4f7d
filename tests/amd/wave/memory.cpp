#include "tests/amd/wave/memory.h"

#include "tests/amd/fault.h"

namespace lumen::amd {

void Memory::add(uint64_t address, uint64_t bytes, void* host, bool writable) {
  ranges_[address] = {address, bytes, static_cast<uint8_t*>(host), writable};
}

void Memory::remove(uint64_t address) {
  ranges_.erase(address);
  last_ = {};
}

bool Memory::holds(uint64_t address, uint64_t bytes) const {
  auto after = ranges_.upper_bound(address);
  if (after == ranges_.begin()) return false;
  const Range& r = (--after)->second;
  return address - r.address < r.bytes && r.bytes - (address - r.address) >= bytes;
}

void Memory::find(uint64_t address, uint64_t bytes, bool writes) {
  auto after = ranges_.upper_bound(address);
  if (after == ranges_.begin()) fault("address {:#x} lies in no allocation", address);
  const Range& r = (--after)->second;
  if (address - r.address >= r.bytes || r.bytes - (address - r.address) < bytes)
    fault("{} bytes at address {:#x} lie outside every allocation: the nearest has {} bytes at {:#x}", bytes, address,
          r.bytes, r.address);
  if (writes && !r.writable) fault("address {:#x} is written and may only be read", address);
  last_ = r;
}

}  // namespace lumen::amd
