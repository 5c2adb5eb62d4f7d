// Whether a device gives the same bits again: a step like training's, run twice from the same state, its bytes
// compared. Proved by tests/run/engine/trial/soundness_test.cpp.
#pragma once

#include <string>

#include "run/engine/compile/compile.h"

namespace lumen::run {

struct Determinism {
  std::string name;    // "any-threads", "same-device", "varies"
  std::string detail;  // what was compared
};
constexpr const char* kAnyThreads = "any-threads";  // same bits twice, and with one thread alone
constexpr const char* kSameDevice = "same-device";  // same bits twice; sums in another order than elsewhere
constexpr const char* kVaries = "varies";

// `alone`: the same device with one thread; null where that means nothing.
Determinism prove_determinism(const CompileContext& context, const CompileContext* alone);

}  // namespace lumen::run
