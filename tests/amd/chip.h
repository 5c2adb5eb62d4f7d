// What the interpreter must know of a chip, besides its instructions' meanings.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace lumen::amd {

struct Chip {
  std::string name;
  int major = 9;               // of the instruction set: 9 (CDNA), 11, 12 (RDNA)
  int wave = 64;               // lanes
  int lds_bytes = 64 << 10;    // of a work-group
  int vgpr_granule = 8;        // what the descriptor counts in
  bool one_file = true;        // accumulation registers lie behind the others (gfx90a and later CDNA)
  bool flat_scratch = false;   // the hardware sets the base of private memory up
  bool group_in_ttmp = false;  // numbers of the work-group lie in ttmp7 and ttmp9
  bool fnuz = false;           // 8-bit floats without negative zero
  unsigned elf_mach = 0;       // in e_flags of the object
  std::string generic = {};    // whose code it runs besides its own, "gfx11-generic"; empty: of none
  unsigned generic_mach = 0;   // likewise
  bool cdna() const { return major == 9; }
};

const std::vector<Chip>& all_chips();
// Null: not a chip the interpreter knows.
const Chip* find_chip(std::string_view name);

}  // namespace lumen::amd
