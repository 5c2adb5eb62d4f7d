// The first of many numbers that is none, or infinite. Proved by tests/run/engine/feedback/feedback_rounder_test.cpp.
#pragma once

#include <cstdint>
#include <optional>
#include <span>

namespace lumen::run {

// Its place; nothing where all are finite. By all threads.
std::optional<int64_t> first_not_finite(std::span<const float> x);

}  // namespace lumen::run
