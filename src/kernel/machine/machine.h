// Machines as data: facts, and rows of instructions. A row says what it means (loop IR text), how LLVM spells it, what
// it needs and what it costs; tests prove each row against its meaning natively or under an emulator. Names of rows:
// family, operand types, result type; a lookup is the same name on every machine that has one.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "kernel/loop/loop.h"

namespace lumen::machine {

// One machine instruction usable from loop IR through `inst`.
struct Row {
  std::string name;     // "dot4.u8i8.i32x16": family, operand types, accumulator
  std::string meaning;  // text of a loop::Function
  std::string llvm;     // intrinsic or a spelling emit knows: "llvm.x86.avx512.vpdpbusd.512"
  std::string needs;    // feature, as LLVM names it: "avx512vnni"
  double cycles = 1;    // issue cost, for the cost model
};

// Dot families the synthesizer looks for: acc[i] += sum_{j<k} a[i*k+j] * b[i*k+j].
// A dot is one row, acc = row(acc, a, b), or where the machine has none a chain of rows that widen step by step:
//   t = row(a, b); t = pairs(t) or pairs(t, ones); acc = acc + t.
struct DotRow {
  std::string row;          // Row::name
  Scalar a, b, acc;         // u8, i8, i32
  int k = 4;                // products per lane of acc
  int lanes = 16;           // of acc
  bool accumulates = true;  // row takes acc as its first operand
  std::string pairs;        // row that adds neighbours of the products; empty: none needed
  bool pairs_ones = false;  // `pairs` multiplies: its second operand is ones
  int64_t a_max = 127;      // largest |a| for which no partial sum saturates, whatever b in -127..127 is
};

// Matrix rows: acc = row(acc, a, b) with whole tiles as operands, stored as memory holds them, row after row of 64
// bytes:
//   acc[m][n] += sum_{k} a[m][k] * b[k / word][n][k % word],  word = 4 / bytes of an element.
struct TileRow {
  std::string row;   // Row::name
  Scalar a, b, acc;  // i8, i8, i32 or bf16, bf16, f32
  int rows = 16;     // of acc and a
  int columns = 16;  // of acc
  int k = 64;        // products per number of acc
};

enum class Kind : uint8_t { cpu, gpu };
enum class Tier : uint8_t { measured, emulated, compiled };  // how far support is proven

struct Machine {
  std::string name;  // what users type: "x86-64-v3", "avx512-vnni", "neon-dotprod", "native"
  Kind kind = Kind::cpu;
  std::string triple, cpu, features;  // for LLVM
  int vector_bits = 256;              // preferred width
  bool scalable = false;              // vector_bits is a property of the processor, not of the instruction set
  int vector_registers = 16;
  bool fma = true;
  double fma_cycles = 0.5;   // issue cost of one full-width fma
  double load_cycles = 0.5;  // issue cost of one full-width load from the first-level cache
  int64_t l1_bytes = 32 << 10, l2_bytes = 1 << 20;
  int wave = 1;  // lanes that step together (GPUs)
  int64_t shared_bytes = 0;
  Tier tier = Tier::compiled;
  std::vector<Row> rows;
  std::vector<DotRow> dots;    // best first
  std::vector<TileRow> tiles;  // empty: no matrix unit
  int tile_registers = 8;
  double tile_cycles = 16;  // issue cost of one matrix row

  int f32_lanes() const { return vector_bits / 32; }
  const Row* find_row(std::string_view name) const;
  const loop::Function* meaning(std::string_view row) const;  // parsed once, null when unknown
};
using MachineRef = std::shared_ptr<const Machine>;

std::vector<MachineRef> all_machines();
MachineRef find_machine(std::string_view name);  // Error with the known names as hint; "native" asks the processor
MachineRef native_machine();
bool runs_here(const Machine& m);  // this processor can execute its code

// Meanings of the recurring families, as loop IR text.
std::string float_dot_meaning(const std::string& name, int lanes);  // bf16 pairs, f32
std::string tile_meaning(const TileRow& t);
// f32[n] above, f32[n] below -> bf16[2n], below first; numbers that are not normal become zero of their sign.
std::string round_pair_meaning(const std::string& name, int lanes);
std::string dot_meaning(const std::string& name, const DotRow& d);
std::string product_pairs_meaning(const std::string& name, int lanes);               // i16[2n], i16[2n] -> i32[n]
std::string saturating_pairs_meaning(const std::string& name, int lanes);            // u8[2n], i8[2n] -> i16[n]
std::string widening_product_meaning(const std::string& name, int lanes);            // i8[n], i8[n] -> i16[n]
std::string sum_pairs_meaning(const std::string& name, int lanes);                   // i16[2n] -> i32[n]
std::string lookup_meaning(const std::string& name, int lanes, bool high_bit_only);  // u8 table, u8 index -> u8
std::string whole_lookup_meaning(const std::string& name, int lanes);  // the table is all lanes of operand 0
std::string lookup64_meaning(const std::string& name);                 // u8x64 table, u8x64 index -> u8x64
std::string lookup128_meaning(const std::string& name);  // u8x64 table, u8x64 index, the table's upper half -> u8x64
// Words (u32 or u16) out of a table of as many.
std::string word_lookup_meaning(const std::string& name, int lanes, const std::string& word = "u32");
std::string bits8_meaning(const std::string& name, int lanes);  // u8 bit, u8 bytes -> u8

// Shared by machines of a family: bf16 dots, and the matrix unit.
void add_bf16(Machine& m);
void add_amx(Machine& m);

// The families, each in a file of its own.
std::vector<Machine> x86_machines();
std::vector<Machine> arm_machines();

}  // namespace lumen::machine
