// What stands behind the operands of an instruction: offsets, halves, DPP, SDWA, hints.
#pragma once

#include <string_view>

#include "tests/amd/decode/instruction.h"

namespace lumen::amd {

// False: the word is no modifier that is known.
bool parse_modifier(std::string_view word, Instruction* i);

}  // namespace lumen::amd
