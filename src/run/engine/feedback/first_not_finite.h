// The first of many numbers that is none, infinite or too large. Proved by
// tests/run/engine/feedback/feedback_rounder_test.cpp.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <span>

namespace lumen::run {

// Its place; nothing where all are finite and none is larger than `largest`. By all threads.
std::optional<int64_t> first_not_finite(std::span<const float> x, float largest = std::numeric_limits<float>::max());

}  // namespace lumen::run
