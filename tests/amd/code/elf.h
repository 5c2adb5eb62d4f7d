// A linked code object as a loader sees it: segments at their places in memory, symbols, notes. Every offset is
// checked.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

namespace lumen::amd {

struct ElfSymbol {
  uint64_t address = 0, bytes = 0;
  bool function = false;
};

struct Elf {
  unsigned machine_flags = 0;                           // e_flags
  int version = 5;                                      // of the code object
  std::vector<uint8_t> memory;                          // all segments, from address 0 on
  std::vector<std::pair<uint64_t, uint64_t>> writable;  // ranges of memory that code may write
  std::map<std::string, ElfSymbol> symbols;             // dynamic, defined
  std::vector<uint8_t> metadata;                        // the note of the AMDGPU vendor, MessagePack
};

// Faults on anything a loader refuses.
Elf read_elf(std::span<const uint8_t> file);

}  // namespace lumen::amd
