// Code to instructions, with LLVM's disassembler for the encoding and operations() for the meaning.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "tests/amd/chip.h"
#include "tests/amd/decode/instruction.h"

namespace lumen::amd {

// A line of the disassembler as an instruction; what is not known becomes one that faults when it is executed, with its
// text and address.
Instruction parse_instruction(const Chip& chip, const std::string& text, uint64_t address, uint32_t bytes);

// All instructions of a kernel, branches resolved. `base`: address of the first byte.
std::vector<Instruction> decode(const Chip& chip, std::span<const uint8_t> code, uint64_t base);

}  // namespace lumen::amd
