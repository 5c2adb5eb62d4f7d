// Runs a group's kernels as machine code of this processor: the last rung under the loop evaluator (tests/kernel/dot_harness.h).
#pragma once

#include "../kernel/dot_harness.h"
#include "emit/emit.h"

namespace lumen::test {

inline std::span<const uint8_t> bytes_of(const std::string& s) {
  return {reinterpret_cast<const uint8_t*>(s.data()), s.size()};
}

// Tasks run in `pieces` ranges, the last first: the split must not matter.
inline void run_kernel(const loop::Kernel& k, const std::vector<void*>& buffers, const machine::Machine& m, int pieces) {
  const std::string object = emit::emit({&k, 1}, m, emit::Output::object);
  const emit::LoadedModule module(bytes_of(object));
  const emit::CpuKernel run = module.find(emit::symbol_name(k));
  for (int piece = pieces; piece-- > 0;) {
    int64_t status[2] = {0, 0};
    run(buffers.data(), k.tasks * piece / pieces, k.tasks * (piece + 1) / pieces, status);
    LUMEN_CHECK(status[0] == 0);
  }
}

inline Bytes run_native(const synth::Synthesis& s, const graph::Plan& plan, const std::map<std::string, graph::Tensor>& inputs,
                        const machine::Machine& m, int pieces = 1) {
  Memory memory(s, plan, inputs);
  for (const synth::Step& step : s.steps) {
    std::vector<void*> buffers;
    for (const synth::Argument& a : step.arguments) buffers.push_back(memory.of(a).data());
    run_kernel(step.kernel, buffers, m, pieces);
  }
  return memory.value(plan.groups[0].results[0]);
}

}  // namespace lumen::test
