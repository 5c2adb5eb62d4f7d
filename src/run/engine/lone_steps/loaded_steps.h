// Kernels that belong to no program, ready to be launched on buffers of the device by whoever has them. Made by
// Engine::load_steps. Proved by tests/run/engine/convert_test.cpp.
#pragma once

#include <span>

#include "kernel/synth/step/step.h"

namespace lumen::run {

class LoadedSteps {
 public:
  virtual ~LoadedSteps() = default;
  // All steps in order; `values` are addresses on the device, by number of value. Returns before an asynchronous device
  // is done.
  virtual void launch(std::span<void* const> values) = 0;
  virtual void finish() = 0;  // waits for what was launched; Error of the first guard that failed
};

}  // namespace lumen::run
