// A chip that executes kernels: code objects in, launches done, memory checked.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "tests/amd/chip.h"
#include "tests/amd/code/code_object.h"
#include "tests/amd/decode/instruction.h"
#include "tests/amd/wave/lds.h"
#include "tests/amd/wave/memory.h"

namespace lumen::amd {

struct LoadedKernel {
  KernelCode code;
  std::vector<Instruction> instructions;  // empty until it is launched first
};
struct LoadedObject {
  CodeObject object;
  uint64_t base = 0;  // where its memory lies
  std::map<std::string, LoadedKernel> kernels;
};

struct Launch {
  unsigned blocks = 1, threads = 1, shared_bytes = 0;
  std::span<const std::byte> arguments;
};

class Machine {
 public:
  explicit Machine(const Chip& chip) : chip_(chip) {}
  const Chip& chip() const { return chip_; }
  Memory& memory() { return memory_; }

  // Faults where the object is refused. It lies in memory until it is unloaded.
  std::unique_ptr<LoadedObject> load(std::span<const uint8_t> file);
  void unload(LoadedObject& object);
  // Executes all work-groups, one after the other. Faults name the kernel, the work-group and the instruction.
  void launch(LoadedObject& object, LoadedKernel& kernel, const Launch& launch);
  // Objects made for the other setting of XNACK are refused from here on.
  void set_xnack(bool on) { xnack_ = on; }
  // A fault in every kernel that is launched first from here on (planted.h); empty: none.
  void plant(std::string fault) { planted_ = std::move(fault); }
  uint64_t planted() const { return changed_; }    // instructions that were changed
  uint64_t executed() const { return executed_; }  // instructions of waves
  // LDS cycles of loads and stores of all launches from here on, and those of them that no bank was asked twice in.
  void count_banks() { counts_banks_ = true; }
  const Lds::Cycles& lds_cycles() const { return lds_cycles_; }
  // Of each wave of every launch from here on, work-group after work-group: how often it executed each instruction of
  // its kernel.
  using Counts = std::vector<std::vector<uint64_t>>;
  void count_instructions(Counts* to) { counts_ = to; }

 private:
  void execute(LoadedObject& object, LoadedKernel& kernel, const Launch& launch, unsigned group);
  const Chip& chip_;
  Memory memory_;
  uint64_t next_base_ = uint64_t{1} << 44, executed_ = 0, changed_ = 0;
  std::string planted_;
  bool counts_banks_ = false;
  Counts* counts_ = nullptr;
  Lds::Cycles lds_cycles_;
  std::optional<bool> xnack_;
};

}  // namespace lumen::amd
