// Operands as the disassembler prints them.
#pragma once

#include <string>
#include <string_view>

#include "tests/amd/decode/instruction.h"

namespace lumen::amd {

// Kind::none where the text is no operand that is known.
Operand parse_operand(std::string_view text, Type type);

// A number, decimal or hexadecimal, with or without sign; false where it is none.
bool parse_number(std::string_view text, int64_t* number);

}  // namespace lumen::amd
