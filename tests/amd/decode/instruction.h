// One decoded instruction: what the text of a disassembler says, taken apart once, so that executing it looks nothing
// up.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

namespace lumen::amd {

class Wave;

// Scalar registers by number; 0..105 are s0..s105.
enum ScalarRegister : uint16_t {
  kVcc = 106,
  kTtmp = 108,  // 16 of them
  kM0 = 124,
  kNull = 125,
  kExec = 126,
  kFlatScratch = 128,
  kXnack = 130,
  kScc = 132,
  kVccz = 133,
  kExecz = 134,
  kScalars = 136
};
constexpr uint16_t kVectors = 512, kAccumulation = 256;  // a0 is vector register 256

// What an operand's bits mean: how constants are made, and what modifiers do.
enum class Type : uint8_t { none, b16, f16, bf16, b32, f32, b64, i64, f64, pk16, pkf16, pk32, raw };

struct Operand {
  enum class Kind : uint8_t { none, vector, scalar, constant } kind = Kind::none;
  Type type = Type::none;
  uint16_t first = 0;
  uint8_t words = 0;
  bool negative = false, absolute = false, extend = false;
  uint8_t half = 0;   // 1: .l, 2: .h
  uint64_t bits = 0;  // of a constant, as its type wants it
};

// Lanes other than its own that an operand comes from (DPP).
struct Dpp {
  enum class Kind : uint8_t { none, quad, shl, shr, ror, wave, mirror, half_mirror, broadcast, share, xmask, eight };
  Kind kind = Kind::none;
  int number = 0;
  std::array<uint8_t, 8> select{};
  unsigned row_mask = 0xf, bank_mask = 0xf;
  bool bound_zero = false, fetch_inactive = false;
};

enum class Part : uint8_t { byte0, byte1, byte2, byte3, word0, word1, dword };
struct Sdwa {
  bool on = false;
  Part to = Part::dword, from[2] = {Part::dword, Part::dword};
  enum class Unused : uint8_t { pad, sext, preserve } unused = Unused::pad;
};

// Counters of memory operations under way, by what they count; generations name and share them differently.
enum Counter : uint8_t { kLoads, kStores, kLds, kScalarMemory, kExports, kCounters };

struct Span {
  uint16_t first = 0, count = 0;
};

struct Instruction;
using Run = void (*)(Wave&, const Instruction&);

constexpr int kMostOperands = 8;
struct Instruction {
  Run run = nullptr;
  uint64_t address = 0;  // in the object
  uint32_t bytes = 0;
  int operands = 0;
  std::array<Operand, kMostOperands> at{};
  uint8_t op_sel = 0, op_sel_hi = 0xff, neg_lo = 0, neg_hi = 0, output_modifier = 0;
  bool clamp = false, gives_back = false, to_lds = false, off = false;
  bool loads = false;  // registers are written some time later, in the order of this counter
  Counter counter = kLoads;
  bool zeroes_high = false;  // a result of 16 bits clears the other half of its register
  int64_t offset = 0, offset1 = 0;
  uint32_t number = 0;                         // of the operation's own use
  int target = -1;                             // of a branch: an instruction's number
  int most[kCounters] = {-1, -1, -1, -1, -1};  // a wait: so many may be left
  int cbsz = 0, blgp = 0, abid = 0;
  Dpp dpp;
  Sdwa sdwa;
  std::vector<Span> vector_reads, vector_writes, scalar_reads, scalar_writes;
  std::vector<Instruction> pair;  // the second one of two that execute together
  std::string text;
};

}  // namespace lumen::amd
