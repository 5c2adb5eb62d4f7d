// Machines as data: facts, and rows of instructions. A row says what it means (loop IR text), how LLVM spells it, what it
// needs and what it costs; tests prove each row against its meaning natively or under an emulator.
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
  std::string name;            // "dot4.u8s8.i32x16": family, operand types, accumulator
  std::string meaning;         // text of a loop::Function
  std::string llvm;            // intrinsic or a spelling emit knows: "llvm.x86.avx512.vpdpbusd.512"
  std::string needs;           // feature, as LLVM names it: "avx512vnni"
  double cycles = 1;           // issue cost, for the cost model
};

// Dot families the synthesizer looks for: acc[i] += sum_{j<k} a[i*k+j] * b[i*k+j].
struct DotRow {
  std::string row;             // Row::name
  Scalar a, b, acc;            // u8, i8, i32
  int k = 4;                   // products per lane of acc
  int lanes = 16;              // of acc
};

enum class Kind : uint8_t { cpu, gpu };
enum class Tier : uint8_t { measured, emulated, compiled };   // how far support is proven

struct Machine {
  std::string name;            // what users type: "x86-64-v3", "avx512-vnni", "neon-dotprod", "native"
  Kind kind = Kind::cpu;
  std::string triple, cpu, features;   // for LLVM
  int vector_bits = 256;       // preferred width
  int vector_registers = 16;
  bool fma = true;
  int64_t l1_bytes = 32 << 10, l2_bytes = 1 << 20;
  int wave = 1;                // lanes that step together (GPUs)
  int64_t shared_bytes = 0;
  Tier tier = Tier::compiled;
  std::vector<Row> rows;
  std::vector<DotRow> dots;    // best first

  int f32_lanes() const { return vector_bits / 32; }
  const Row* find_row(std::string_view name) const;
  const loop::Function* meaning(std::string_view row) const;   // parsed once, null when unknown
};
using MachineRef = std::shared_ptr<const Machine>;

std::vector<MachineRef> all_machines();
MachineRef find_machine(std::string_view name);      // Error with the known names as hint; "native" asks the processor
MachineRef native_machine();
bool runs_here(const Machine& m);                    // this processor can execute its code

}  // namespace lumen::machine
