// Memory that kernels reach by addresses: what is allocated now, and nothing else.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>

namespace lumen::amd {

class Memory {
 public:
  // [address, address + bytes) is `host` from now on. `writable`: kernels may store there.
  void add(uint64_t address, uint64_t bytes, void* host, bool writable);
  void remove(uint64_t address);

  bool holds(uint64_t address, uint64_t bytes) const;
  // The host's bytes; faults where some lie outside what is allocated, or are written and may not be.
  uint8_t* reach(uint64_t address, uint64_t bytes, bool writes) {
    const Range& r = last_;
    if (address - r.address >= r.bytes || r.bytes - (address - r.address) < bytes || (writes && !r.writable))
      find(address, bytes, writes);
    return last_.host + (address - last_.address);
  }

 private:
  struct Range {
    uint64_t address = 0, bytes = 0;
    uint8_t* host = nullptr;
    bool writable = false;
  };
  void find(uint64_t address, uint64_t bytes, bool writes);
  std::map<uint64_t, Range> ranges_;
  Range last_;
};

}  // namespace lumen::amd
