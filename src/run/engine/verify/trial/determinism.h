// Tests whether a device is deterministic: runs a training-like step twice from the same state, and compares the bytes.
// Proved by tests/run/engine/verify/trial/soundness_test.cpp.
#pragma once

#include <string>

#include "run/engine/compile/compile.h"

namespace lumen::run {

struct Determinism {
  std::string name;    // "any-threads", "same-device", "varies"
  std::string detail;  // what was compared
};
constexpr const char* kAnyThreads = "any-threads";  // same bits twice, and with a single thread
constexpr const char* kSameDevice = "same-device";  // same bits twice; another summation order than other devices
constexpr const char* kVaries = "varies";

// `alone`: the same device with one thread; null if not applicable.
Determinism prove_determinism(const CompileContext& context, const CompileContext* alone);

}  // namespace lumen::run
