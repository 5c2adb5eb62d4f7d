// Finds the first number that is NaN, infinite or too large. Proved by
// tests/run/engine/feedback/feedback_rounder_test.cpp.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <span>

namespace lumen::run {

// Its index; nullopt if all are finite and at most `largest`. Parallel.
std::optional<int64_t> first_not_finite(std::span<const float> x, float largest = std::numeric_limits<float>::max());

}  // namespace lumen::run
