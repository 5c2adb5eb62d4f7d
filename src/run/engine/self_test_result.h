// Whether a device computes what the evaluator says, in kernels as real work has them (trial/trial.h): tried on first
// use, once for each device, driver, table of instructions and code generator, and remembered in the cache's folder.
// Instructions that computed wrongly are taken out of the table; a device that is wrong without any of them is not
// used. Proved by tests/run/engine/self_test_result_test.cpp.
#pragma once

#include <string>
#include <vector>

#include "run/engine/cache/user_cache.h"
#include "run/engine/trial/soundness.h"

namespace lumen::run {

// What is known of a device.
struct DeviceResult {
  std::vector<RefusedRow> refused;
  std::string wrong;  // why it is not used at all; empty: it is
};
DeviceResult result_of(const Soundness& s);

// The first kernel that ran and disagreed, as a sentence; empty when none did. What could not be compiled or launched
// computes nothing wrong: it says so itself when it is needed.
std::string disagreement(const std::vector<CheckLine>& lines);

// Keeps what a test of the device found.
void keep_result(const CompileContext& context, const DeviceResult& outcome);

// What is known of the device, which is tried where nothing is. `open`: the device with another table.
DeviceResult known_or_tried(const CompileContext& context, const OpenMachine& open);

}  // namespace lumen::run
