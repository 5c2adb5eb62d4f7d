// The AMD machines: GCN and CDNA with waves of 64 lanes, RDNA with waves of 32. Facts and rows only.
// Proved by tests/emit/gpu_test.cpp.
#include "kernel/machine/machine.h"

namespace lumen::machine {
namespace {

Machine generation(const std::string& name, int wave, int64_t shared_bytes) {
  Machine m;
  m.name = name;
  m.kind = Kind::gpu;
  m.triple = "amdgcn-amd-amdhsa";
  m.cpu = name;
  m.features = wave == 64 ? "+wavefrontsize64" : "+wavefrontsize32";
  m.wave = wave;
  m.shared_bytes = shared_bytes;
  m.registers = 256;
  as_threads(m);
  return m;
}

}  // namespace

// Wave sizes and LDS: LLVM's AMDGPU usage guide (processors) and the instruction set documents.
std::vector<Machine> amd_machines() {
  std::vector<Machine> out;
  for (const char* name : {"gfx906", "gfx908", "gfx90a", "gfx942"}) out.push_back(generation(name, 64, 64 << 10));
  out.push_back(generation("gfx950", 64, 160 << 10));
  for (const char* name : {"gfx1030", "gfx1100", "gfx1101", "gfx1102", "gfx1151", "gfx1200", "gfx1201"})
    out.push_back(generation(name, 32, 64 << 10));
  return out;
}

}  // namespace lumen::machine
