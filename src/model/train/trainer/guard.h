// Rules of the numeric guard: everything that training starts from, saves and returns must be finite, with an error
// that names the tensor; and the definition of a loss spike. Proved by tests/model/train/guard_test.cpp.
#pragma once

#include <cstddef>
#include <limits>
#include <optional>
#include <span>
#include <string>

#include "model/train/trainer/run_state.h"

namespace lumen::model::train {

// Hint for numbers that have become NaN or infinite.
inline constexpr const char* kDivergedHint =
    "begin again from a good state with a lower learning rate, a longer warm-up or a smaller max_grad_norm";

// Weights beyond this have squares that overflow f32: norms of their products become 0 or infinite, and the loss no
// longer depends on them.
inline constexpr float kLargestWeight = 1.8e19F;

// Index of the first NaN or infinity, or number beyond `largest`.
std::optional<size_t> first_not_finite(std::span<const float> values,
                                       float largest = std::numeric_limits<float>::max());

// Error (exit 4) that names `where` (a file, or a moment) and the tensor, with `hint`.
void require_finite(std::span<const float> values, const std::string& where, const std::string& tensor,
                    const std::string& hint, float largest = std::numeric_limits<float>::max());

// Describes a spike: the step's loss or gradient norm exceeds `factor` times the median of recent steps (0: never; not
// before there are a few steps). Empty when there is none.
std::string spike_of(const RunState& state, double factor, double loss, double norm);

}  // namespace lumen::model::train
