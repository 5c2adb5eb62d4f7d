// Whether a device agrees with the evaluator, for kernels typical of real work (verify/trial/trial.h): tested on first
// use, once for each device, driver, instruction table and code generator, and stored in the cache's folder.
// Instructions that computed wrongly are removed from the table; a device that is wrong without any of them is not
// used. Proved by tests/run/engine/self_test_result_test.cpp.
#pragma once

#include <string>
#include <vector>

#include "run/engine/cache/user_cache.h"
#include "run/engine/verify/trial/soundness.h"

namespace lumen::run {

// The test result of a device.
struct DeviceResult {
  std::vector<RefusedRow> refused;
  std::string wrong;  // reason why it is not used at all; empty: it is used
};
DeviceResult result_of(const Soundness& s);

// A sentence about the first kernel that ran and disagreed; empty if none did. Kernels that could not be compiled or
// launched do not count: they report an Error when needed.
std::string disagreement(const std::vector<CheckLine>& lines);

// Stores a test result of the device.
void keep_result(const CompileContext& context, const DeviceResult& outcome);

// The stored result of the device, or that of a new test. `open`: the device with another table.
DeviceResult known_or_tried(const CompileContext& context, const OpenMachine& open);

}  // namespace lumen::run
