// The numeric guard's rules: what training begins with, saves and hands over is finite, and what is not is named; and
// what counts as a spike. Proved by tests/model/train/guard_test.cpp.
#pragma once

#include <cstddef>
#include <limits>
#include <optional>
#include <span>
#include <string>

#include "model/train/trainer/run_state.h"

namespace lumen::model {

// What to do where numbers have become such.
inline constexpr const char* kDivergedHint =
    "begin again from a good state with a lower learning rate, a longer warm-up or a smaller max_grad_norm";

// Weights beyond this have squares that f32 does not hold: norms of what they are multiplied with become 0 or infinite,
// and the loss says no more about them.
inline constexpr float kLargestWeight = 1.8e19F;

// Index of the first NaN or infinity, or number beyond `largest`.
std::optional<size_t> first_not_finite(std::span<const float> values,
                                       float largest = std::numeric_limits<float>::max());

// Error (exit 4) that names `where` (a file, or a moment) and the tensor, with `hint`.
void require_finite(std::span<const float> values, const std::string& where, const std::string& tensor,
                    const std::string& hint, float largest = std::numeric_limits<float>::max());

// What a step did that the last ones did not: its loss or gradient norm is above `factor` times their median (0: never,
// and not before there are a few). Empty when nothing.
std::string spike_of(const RunState& state, double factor, double loss, double norm);

}  // namespace lumen::model
