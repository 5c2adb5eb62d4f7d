// Looks machines up by name, detects the processor, and parses the meaning of each row once.
// Proved by tests/kernel/machine/machine_rows_test.cpp.
#include "kernel/machine/machine.h"

#include <fmt/ranges.h>

#include <map>
#include <mutex>

#if defined(__aarch64__)
#include <asm/hwcap.h>
#include <sys/auxv.h>
#include <sys/prctl.h>
#elif defined(__x86_64__)
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

#include "base/check.h"
#include "base/error.h"
#include "kernel/loop/text.h"
#include "kernel/machine/relatives.h"

namespace lumen::machine {
namespace {

const std::vector<MachineRef>& table() {
  static const std::vector<MachineRef> all = [] {
    std::vector<MachineRef> out;
    for (auto* family : {&x86_machines, &arm_machines, &nvidia_machines, &amd_machines})
      for (Machine& m : family()) out.push_back(std::make_shared<const Machine>(std::move(m)));
    return out;
  }();
  return all;
}

// Microcontrollers: none runs an engine, so they are not in the machines of lists and tests, but programs are written
// for them (run/engine/portable). Without SIMD: a vector of 32 bits has one lane.
const std::vector<MachineRef>& microcontrollers() {
  static const std::vector<MachineRef> all = [] {
    std::vector<MachineRef> out;
    for (const char* cpu : {"cortex-m4", "cortex-m7"}) {
      Machine m;
      m.name = cpu;
      m.triple = "thumbv7em-none-unknown-eabihf";
      m.cpu = cpu;
      m.vector_bits = 32;
      m.vector_registers = 8;
      m.l1_bytes = 4 << 10;
      m.l2_bytes = 64 << 10;
      m.task_bytes = 4 << 10;
      out.push_back(std::make_shared<const Machine>(std::move(m)));
    }
    return out;
  }();
  return all;
}

#if defined(__aarch64__)
// Bits of a thread's ordinary and streaming vectors; 0: the processor or the system has none. Threads inherit the
// lengths of the thread that starts them.
int scalable_bits() {
  return (getauxval(AT_HWCAP) & HWCAP_SVE) != 0 ? (::prctl(PR_SVE_GET_VL) & PR_SVE_VL_LEN_MASK) * 8 : 0;
}
int streaming_bits() {
  constexpr unsigned long kUnit = 1UL << 23;        // HWCAP2_SME
  constexpr int kGetLength = 64, kLength = 0xffff;  // PR_SME_GET_VL, PR_SME_VL_LEN_MASK
  const int length = (getauxval(AT_HWCAP2) & kUnit) != 0 ? ::prctl(kGetLength) : 0;
  return length > 0 ? (length & kLength) * 8 : 0;
}
#endif

#if defined(__x86_64__)
bool has_avx_vnni() {
  unsigned a = 0, b = 0, c = 0, d = 0;
  return __get_cpuid_count(7, 1, &a, &b, &c, &d) && (a & 1U << 4) != 0;
}

// Whether the processor has the matrix unit and the system lets this process and every thread it starts from now on use
// it.
bool tiles_allowed() {
  static const bool allowed = [] {
    unsigned a = 0, b = 0, c = 0, d = 0;
    if (!__get_cpuid_count(7, 0, &a, &b, &c, &d)) return false;
    constexpr unsigned kBf16 = 1U << 22, kTile = 1U << 24, kInt8 = 1U << 25;
    if ((d & (kBf16 | kTile | kInt8)) != (kBf16 | kTile | kInt8)) return false;
    constexpr long kRequestPermission = 0x1023, kTileData = 18;  // ARCH_REQ_XCOMP_PERM, XFEATURE_XTILE_DATA
    return syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
  }();
  return allowed;
}
#endif

bool processor_has(std::string_view name) {
#if defined(__x86_64__)
  __builtin_cpu_init();
  const bool v3 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("bmi2") &&
                  __builtin_cpu_supports("f16c");
  const bool v4 = v3 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                  __builtin_cpu_supports("avx512cd") && __builtin_cpu_supports("avx512dq") &&
                  __builtin_cpu_supports("avx512vl");
  if (name == "x86-64-v3") return v3;
  if (name == "avx512") return v4;
  if (name == "avx-vnni") return v3 && has_avx_vnni();
  const bool vnni = v4 && __builtin_cpu_supports("avx512vnni");
  const bool vbmi = vnni && __builtin_cpu_supports("avx512vbmi");
  const bool bf16 = vbmi && __builtin_cpu_supports("avx512bf16");
  if (name == "avx512-vnni") return vnni;
  if (name == "avx512-vbmi") return vbmi;
  if (name == "avx512-bf16") return bf16;
  if (name == "amx") return bf16 && tiles_allowed();
#elif defined(__aarch64__)
  if (name == "neon") return true;
  if (name == "neon-dotprod") return (getauxval(AT_HWCAP) & HWCAP_ASIMDDP) != 0;
  const bool i8mm = (getauxval(AT_HWCAP) & HWCAP_ASIMDDP) != 0 && (getauxval(AT_HWCAP2) & HWCAP2_I8MM) != 0;
  if (name == "neon-i8mm") return i8mm;
  const bool bf16 = i8mm && (getauxval(AT_HWCAP2) & HWCAP2_BF16) != 0;
  if (name == "neon-bf16") return bf16;
  if (name.starts_with("sme")) return bf16 && name == fmt::format("sme-{}", streaming_bits());
  const int bits = scalable_bits();
  if (bits == 0 || !name.starts_with("sve")) return false;
  const bool second = bf16 && (getauxval(AT_HWCAP2) & HWCAP2_SVE2) != 0;
  return name == fmt::format("sve-{}", bits) || (i8mm && name == fmt::format("sve-i8mm-{}", bits)) ||
         (bf16 && name == fmt::format("sve-bf16-{}", bits)) || (second && name == fmt::format("sve2-{}", bits));
#endif
  return false;
}

}  // namespace

const Row* Machine::find_row(std::string_view wanted) const {
  for (const Row& row : rows)
    if (row.name == wanted) return &row;
  return nullptr;
}

const MatrixLoad* Machine::find_load(bool transposed) const {
  const auto found = std::ranges::find(loads, transposed, &MatrixLoad::transposed);
  return found == loads.end() ? nullptr : &*found;
}

const loop::Function* Machine::meaning(std::string_view row) const {
  // A row's text is its identity, so machines that share a row share the parsed function.
  static std::mutex mutex;
  static std::map<std::string, std::unique_ptr<loop::Function>> parsed;
  const Row* found = find_row(row);
  if (!found) return nullptr;
  const std::lock_guard lock(mutex);
  const auto matrix = std::ranges::find(matrices, found->name, &MatrixRow::row);
  const auto load = std::ranges::find(loads, found->name, &MatrixLoad::row);
  const auto collective = matrix != matrices.end() ? matrix->collective  // part of the identity, too
                          : load != loads.end()    ? load->collective
                                                   : nullptr;
  std::unique_ptr<loop::Function>& entry = parsed[fmt::format("{} {}", fmt::ptr(collective), found->meaning)];
  if (!entry) {
    entry = std::make_unique<loop::Function>(
        loop::parse_function(std::make_shared<Source>(Source{"<row " + found->name + ">", found->meaning})));
    entry->collective = collective;
  }
  return entry.get();
}

std::vector<MachineRef> all_machines() {
  return table();
}

MachineRef find_machine(std::string_view name) {
  if (name == "native") return native_machine();
  std::vector<std::string> names{"native"};
  for (const MachineRef& m : table()) {
    if (m->name == name) return m;
    names.push_back(m->name);
  }
  for (const MachineRef& m : relatives()) {
    if (m->name == name) return m;
    names.push_back(m->name);
  }
  for (const MachineRef& m : microcontrollers())
    if (m->name == name) return m;
  throw Error(Exit::usage, fmt::format("no machine is called '{}'", name),
              fmt::format("known machines: {}", fmt::join(names, ", ")));
}

MachineRef native_machine() {
  static const MachineRef found = [] {
    MachineRef best;
    for (const MachineRef& m : table())  // families list their machines from the least to the most capable
      if (processor_has(m->name)) best = m;
#if defined(__aarch64__)
    // Machines with a matrix unit are chosen only if ordinary vectors are no wider than theirs.
    for (const MachineRef& m : relatives())
      if (!m->tiles.empty() && scalable_bits() <= m->vector_bits && processor_has(m->name)) best = m;
#endif
    if (!best)
      throw Error(Exit::hardware, "this processor has none of the vector extensions Lumen generates code for",
                  "x86-64 needs AVX2 and FMA (x86-64-v3), AArch64 needs Advanced SIMD");
    return best;
  }();
  return found;
}

bool runs_here(const Machine& m) {
  return processor_has(m.name);
}

}  // namespace lumen::machine
