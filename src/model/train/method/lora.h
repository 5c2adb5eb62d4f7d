// Trainable adapters: which weights get one, its parameters, and their initial values. The weights themselves stay as
// stored in their file. Depends on settings, models and graphs, not on engines. Proved by
// tests/model/train/adapter/lora_test.cpp and tests/model/train/adapter/lora_reference.py (peft).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "graph/transform/low_rank.h"
#include "model/arch/adapter/adapter.h"
#include "model/arch/model.h"
#include "model/recipe/adapter_settings.h"

namespace lumen::model::train {

inline constexpr const char* kRoleA = "adapter_a";
inline constexpr const char* kRoleB = "adapter_b";
inline constexpr const char* kRoleMagnitude = "adapter_magnitude";

// Low-rank changes of a model's weights, in the order of its parameters. `places`: how the family's loss uses the
// weights (graph::low_rank_places). Error when a target matches nothing, or matches a weight with no use that a change
// can be added to.
std::vector<graph::LowRank> adapter_changes(const arch::Model& model,
                                            const std::map<std::string, graph::LowRankPlaces>& places,
                                            const recipe::AdapterSettings& settings);
// The changes for evaluation: without dropout.
std::vector<graph::LowRank> without_dropout(std::vector<graph::LowRank> changes);

// A, B and magnitude of each change. One of A and B is random and the other zero, so the initial change is zero: A is
// uniform in +-1 / sqrt(columns); for row lookups (embeddings) B is normal and A is zero. Magnitudes begin as the norms
// of the weight's rows.
std::vector<arch::Parameter> adapter_parameters(const arch::Model& model, const std::vector<graph::LowRank>& changes,
                                                const recipe::AdapterSettings& settings);

}  // namespace lumen::model::train
