// Merges adapters into a weight: W + scale * B A, and the norms of its rows if there are magnitudes (adapter.h).
// Computed by compiled kernels from the stored weight, with the same operations as training with the adapter inside the
// rounding (graph/transform/rounded_sum.h); only one weight at a time is in f32. Proved by
// tests/model/compress/merge_test.cpp and tests/model/arch/adapter/adapter_test.cpp.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "model/arch/adapter/adapter.h"
#include "run/engine/engine.h"

namespace lumen::model::arch {

// magnitude[n] / |row n of W + scale * B A| (columns of an embedding). Error (exit 4) when a norm is 0 or NaN.
std::vector<float> magnitude_gain(run::Engine& engine, const Parameter& p, const Weight& w, const AdapterPart& part);

// The weight with the updates of all adapters, in f32. Several add up; those with magnitudes combine as in
// infer/session/session.h.
std::vector<float> adapted_values(run::Engine& engine, const Parameter& p, const Weight& w,
                                  std::span<const ScaledAdapter> adapters);
// Multiplies row n by by[n].
Weight rows_scaled(const Weight& w, std::span<const float> by);
// Whether any adapter updates the parameter.
bool is_adapted(const std::string& parameter, std::span<const ScaledAdapter> adapters);

}  // namespace lumen::model::arch
