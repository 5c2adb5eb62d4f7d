// What the interpreter can execute: by the name that the disassembler prints, without the suffix of its encoding.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "tests/amd/chip.h"
#include "tests/amd/decode/instruction.h"

namespace lumen::amd {

struct Operation {
  Run run = nullptr;
  std::vector<Type> types{};  // of the operands in the order of the text; the last one holds for all behind it
  int results = 1;            // so many operands are written
  bool accumulates = false;   // the first operand is read too
  uint32_t number = 0;
  enum class Shape : uint8_t { plain, wait, branch, immediate, ignored, vcc_reader, vcc_writer } shape = Shape::plain;
  bool zeroes_high = false;    // on generation 9: see Instruction
  bool integer_clamp = false;  // `clamp` saturates and the operation does it itself
};

using Operations = std::map<std::string, Operation, std::less<>>;

// All operations of a generation; made once.
const Operations& operations(const Chip& chip);

}  // namespace lumen::amd
