// Kernels outside of programs, ready to launch on buffers of the device. Created by Engine::load_steps. Proved by
// tests/run/engine/convert_test.cpp.
#pragma once

#include <span>

#include "kernel/synth/step/step.h"

namespace lumen::run {

class LoadedSteps {
 public:
  virtual ~LoadedSteps() = default;
  // Launches all steps in order; `values` are device addresses, by value number. Returns before an asynchronous device
  // has finished.
  virtual void launch(std::span<void* const> values) = 0;
  virtual void finish() = 0;  // waits for the launches; Error of the first guard that failed
};

}  // namespace lumen::run
