// Faults that are planted in a chip: instructions whose text begins with some words do something else than the
// documents say, as a broken card, a wrong table of lanes or a wrong encoding would. For tests of those who should
// notice.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "tests/amd/chip.h"
#include "tests/amd/decode/instruction.h"

namespace lumen::amd {

// Names of faults, each with what it does.
struct PlantedKind {
  std::string_view name, text;
};
const std::vector<PlantedKind>& planted_kinds();

// "KIND WORDS": changes all instructions of a kernel that begin with the words. Faults for a kind that is not known.
// Gives how many were changed.
int plant(const Chip& chip, const std::string& what, std::vector<Instruction>* code);

}  // namespace lumen::amd
