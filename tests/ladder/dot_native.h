// The last rungs under the loop evaluator: the steps of a dot as machine code of this processor, or of an emulated one.
// Every step must leave the very bytes the evaluator leaves (fused multiply-adds are written out, so there is one right
// answer).
#pragma once

#include <memory>

#include "emit/emit.h"
#include "kernel/loop/expand.h"
#include "tests/kernel/synth/gemm/dot_harness.h"

namespace lumen::dot_test {

// One kernel, what its buffers hold before, and after by the evaluator.
struct Case {
  loop::Kernel kernel;
  std::vector<Bytes> before, after;
};

inline std::vector<Case> cases_of(const synth::Synthesis& s, const graph::Plan& plan,
                                  const std::map<std::string, graph::Tensor>& inputs, const machine::Machine& m) {
  Memory memory(s, plan, inputs);
  std::vector<Case> cases;
  for (const synth::Step& step : s.steps) {
    Case c{step.kernel, {}, {}};
    std::vector<std::span<uint8_t>> buffers;
    for (const synth::Argument& a : step.arguments) {
      c.before.push_back(memory.of(a));
      buffers.emplace_back(memory.of(a));
    }
    // Transcendental operations in the form every machine computes them.
    loop::eval(loop::expand(step.kernel), buffers, [&](std::string_view row) { return m.meaning(row); }, m.wave);
    for (const synth::Argument& a : step.arguments) c.after.push_back(memory.of(a));
    cases.push_back(std::move(c));
  }
  return cases;
}

// Tasks run in `pieces` ranges, the last first: the split must not matter.
inline std::vector<Bytes> run_native(const Case& c, const machine::Machine& m, int pieces) {
  const std::string object = emit::emit({&c.kernel, 1}, m, emit::Output::object);
  const emit::LoadedModule module({reinterpret_cast<const uint8_t*>(object.data()), object.size()});
  const emit::CpuKernel run = module.find(emit::symbol_name(c.kernel));
  struct Free {
    void operator()(void* p) const { std::free(p); }
  };
  std::vector<std::unique_ptr<void, Free>> memory;
  std::vector<void*> buffers;
  for (const Bytes& b : c.before) {
    memory.emplace_back(std::aligned_alloc(64, (b.size() + 127) / 64 * 64));
    std::memcpy(memory.back().get(), b.data(), b.size());
    buffers.push_back(memory.back().get());
  }
  for (int piece = pieces; piece-- > 0;) {
    int64_t status[2] = {0, 0};
    run(buffers.data(), c.kernel.tasks * piece / pieces, c.kernel.tasks * (piece + 1) / pieces, status);
    LUMEN_CHECK(status[0] == 0);
  }
  std::vector<Bytes> out;
  for (size_t i = 0; i < buffers.size(); ++i) {
    const uint8_t* data = static_cast<const uint8_t*>(buffers[i]);
    out.emplace_back(data, data + c.before[i].size());
  }
  return out;
}

}  // namespace lumen::dot_test
