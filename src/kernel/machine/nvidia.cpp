// The NVIDIA machines. Facts and rows only; LLVM makes PTX for them, the driver makes machine code of it.
// Proved by tests/emit/gpu_test.cpp.
#include "kernel/machine/machine.h"

namespace lumen::machine {
namespace {

Machine generation(const std::string& name, const std::string& ptx, int64_t shared_bytes) {
  Machine m;
  m.name = name;
  m.kind = Kind::gpu;
  m.triple = "nvptx64-nvidia-cuda";
  m.cpu = name;
  m.features = "+" + ptx;
  m.wave = 32;
  m.shared_bytes = shared_bytes;
  m.registers = 255;
  as_threads(m);
  return m;
}

}  // namespace

// Shared memory: CUDA programming guide, technical specifications per compute capability, most of one block. PTX
// versions: the lowest that knows the target and its instructions (PTX ISA, release notes).
std::vector<Machine> nvidia_machines() {
  return {generation("sm_80", "ptx71", 163 << 10), generation("sm_89", "ptx84", 99 << 10),
          generation("sm_90a", "ptx84", 227 << 10), generation("sm_100a", "ptx86", 227 << 10),
          generation("sm_120", "ptx87", 99 << 10)};
}

}  // namespace lumen::machine
