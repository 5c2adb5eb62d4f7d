// Whether a GPU computes what the evaluator says, in kernels with f32 activations (CompileOptions::exact; those that
// round activations are not tried): once for each GPU, driver and code generator, and remembered in the cache's folder.
// What disagrees is not used. Proved by tests/run/engine/self_test_result_test.cpp.
#pragma once

#include <string>
#include <vector>

#include "run/engine/cache/kept_files.h"
#include "run/engine/family_check.h"

namespace lumen::run {

// The first kernel that ran and disagreed, as a sentence; empty when none did. A family that could not be compiled or
// launched computes nothing wrong: it says so itself when it is needed.
std::string disagreement(const std::vector<CheckLine>& lines);

// Keeps what a self-test of the device found.
void keep_result(const Device& device, KeptFiles& kept, const std::string& disagreement);

// Tests the device unless its result is known. Error (exit 3) when it disagreed.
void require_sound(Engine& engine, KeptFiles& kept);

}  // namespace lumen::run
