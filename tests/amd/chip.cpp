// Facts: LLVM's AMDGPU usage guide (processors, initial kernel execution state).
#include "tests/amd/chip.h"

#include <array>

namespace lumen::amd {

const Chip* find_chip(std::string_view name) {
  static const std::array<Chip, 5> chips = {{
      {.name = "gfx90a", .elf_mach = 0x3f},
      {.name = "gfx942", .flat_scratch = true, .fnuz = true, .elf_mach = 0x4c},
      {.name = "gfx950", .lds_bytes = 160 << 10, .flat_scratch = true, .elf_mach = 0x4f},
      {.name = "gfx1100", .major = 11, .wave = 32, .one_file = false, .flat_scratch = true, .elf_mach = 0x41},
      {.name = "gfx1201",
       .major = 12,
       .wave = 32,
       .one_file = false,
       .flat_scratch = true,
       .group_in_ttmp = true,
       .elf_mach = 0x4e},
  }};
  for (const Chip& c : chips)
    if (c.name == name) return &c;
  return nullptr;
}

}  // namespace lumen::amd
