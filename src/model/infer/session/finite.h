// Checks that a model's results are finite. If they are not, the faulty weight is searched for and named. Matrices are
// not checked in advance, so a valid model only pays for a check of its logits. Norms and other small weights are
// checked in advance, because a product that rounds its operands turns a NaN into some finite number. Proved by
// tests/model/infer/finite_test.cpp.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "model/infer/session/session.h"

namespace lumen::model::infer {

bool all_finite(std::span<const float> values);

// "'blk.0.ffn_up.weight' holds nan in row 2, column 5" for the first such weight of the model and its adapters; "" if
// there is none.
std::string broken_weight(const LoadedModel& loaded);

// Error (numeric) if one of the model's small f32 weights has a non-finite value.
void require_finite_vectors(const arch::Model& model);

// Error (numeric) if a value is not finite; `what` names the values: "logits".
void require_finite(const LoadedModel& loaded, std::span<const float> values, std::string_view what);

}  // namespace lumen::model::infer
