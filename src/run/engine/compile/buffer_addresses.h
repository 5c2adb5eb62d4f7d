// Addresses of a plan's values at run time: every value becomes an input, a constant or bytes of the arena. Proved by
// tests/run/engine/compile_test.cpp.
#pragma once

#include "graph/fuse/plan.h"
#include "run/engine/program/execute.h"

namespace lumen::run {

// Maps a plan's ValueId to an input, a constant or an address in the arena.
class BufferAddresses {
 public:
  // Creates the constants on the device. The plan must outlive this object.
  BufferAddresses(const graph::Pipeline& p, const std::shared_ptr<Device>& device);

  BufferAddress of(graph::ValueId v) const;

  std::vector<ProgramInput> inputs;
  std::vector<DeviceTensorRef> constants;

 private:
  const graph::MemoryPlan& memory_;
  std::vector<int64_t> numbers_;  // of inputs and of constants, by value
  std::vector<bool> is_constant_;
};

}  // namespace lumen::run
