// What adapters make of a weight: W + scale * B A, and the lengths of its rows where magnitudes take part (adapter.h).
// Computed by compiled kernels from the weight as it is stored, operation by operation as training with the adapter
// inside the rounding does (graph/transform/rounded_sum.h); one weight at a time is ever held in f32. Proved by
// tests/model/compress/merge_test.cpp and tests/model/arch/adapter/adapter_test.cpp.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "model/arch/adapter/adapter.h"
#include "run/engine/engine.h"

namespace lumen::model {

// magnitude[n] / |row n of W + scale * B A| (columns of an embedding). Error (exit 4) when a length is 0 or no number.
std::vector<float> magnitude_gain(run::Engine& engine, const Parameter& p, const Weight& w, const AdapterPart& part);

// The weight with the changes of all adapters that have one for it, in f32. Several add up; those with magnitudes as
// infer/session/session.h says.
std::vector<float> adapted_values(run::Engine& engine, const Parameter& p, const Weight& w,
                                  std::span<const ScaledAdapter> adapters);
// Row n times by[n].
Weight rows_scaled(const Weight& w, std::span<const float> by);
// Whether any has.
bool is_adapted(const std::string& parameter, std::span<const ScaledAdapter> adapters);

}  // namespace lumen::model
