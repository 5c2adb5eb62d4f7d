// What a model computed must be numbers. Where it is not, the weight at fault is looked for and named. Matrices are not
// read before, so that a sound model pays for a look at its logits alone; norms and other small ones are, because a
// product that rounds what it is multiplied with makes some number of them. Proved by
// tests/model/infer/finite_test.cpp.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "model/infer/session/session.h"

namespace lumen::model {

bool all_finite(std::span<const float> values);

// "'blk.0.ffn_up.weight' holds nan in row 2, column 5" of the first such weight of model and adapters; "" when there is
// none.
std::string broken_weight(const LoadedModel& loaded);

// Error (numeric) when one of the model's small f32 weights holds something that is no number.
void require_finite_vectors(const Model& model);

// Error (numeric) when a value is none; `what` are the values: "logits".
void require_finite(const LoadedModel& loaded, std::span<const float> values, std::string_view what);

}  // namespace lumen::model
