// Facts: LLVM's AMDGPU usage guide (processors, generic processors, initial kernel execution state).
#include "tests/amd/chip.h"

#include <vector>

namespace lumen::amd {
namespace {

Chip rdna3(const char* name, unsigned elf_mach) {
  return {.name = name,
          .major = 11,
          .wave = 32,
          .one_file = false,
          .flat_scratch = true,
          .elf_mach = elf_mach,
          .generic = "gfx11-generic",
          .generic_mach = 0x54};
}
Chip rdna4(const char* name, unsigned elf_mach) {
  return {.name = name,
          .major = 12,
          .wave = 32,
          .one_file = false,
          .flat_scratch = true,
          .group_in_ttmp = true,
          .elf_mach = elf_mach,
          .generic = "gfx12-generic",
          .generic_mach = 0x59};
}

}  // namespace

const std::vector<Chip>& all_chips() {
  static const std::vector<Chip> chips = {
      {.name = "gfx90a", .elf_mach = 0x3f},
      {.name = "gfx942", .flat_scratch = true, .fnuz = true, .elf_mach = 0x4c},
      {.name = "gfx950", .lds_bytes = 160 << 10, .flat_scratch = true, .elf_mach = 0x4f},
      rdna3("gfx1100", 0x41),
      rdna3("gfx1101", 0x46),
      rdna3("gfx1102", 0x47),
      rdna3("gfx1103", 0x44),
      rdna3("gfx1150", 0x43),
      rdna3("gfx1151", 0x4a),
      rdna3("gfx1152", 0x55),
      rdna3("gfx1153", 0x58),
      rdna4("gfx1200", 0x48),
      rdna4("gfx1201", 0x4e),
  };
  return chips;
}

const Chip* find_chip(std::string_view name) {
  for (const Chip& c : all_chips())
    if (c.name == name) return &c;
  return nullptr;
}

}  // namespace lumen::amd
