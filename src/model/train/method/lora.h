// Adapters that are trained: which weights get one, the parameters it has, and the numbers it begins with. The weights
// themselves stay as their file holds them. Knows settings, models and graphs, not engines. Proved by
// tests/model/train/adapter/lora_test.cpp and tests/model/train/adapter/lora_reference.py (peft).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "graph/transform/low_rank.h"
#include "model/arch/adapter/adapter.h"
#include "model/arch/model.h"
#include "model/recipe/adapter_settings.h"

namespace lumen::model {

inline constexpr const char* kRoleA = "adapter_a";
inline constexpr const char* kRoleB = "adapter_b";
inline constexpr const char* kRoleMagnitude = "adapter_magnitude";

// The changes of a model's weights, in the order of its parameters. `places`: how the family's loss uses them
// (graph::low_rank_places). Error when a target matches nothing, or a weight that has no use a change could be added
// to.
std::vector<graph::LowRank> adapter_changes(const Model& model,
                                            const std::map<std::string, graph::LowRankPlaces>& places,
                                            const AdapterSettings& settings);
// What of them counts in evaluation: nothing is dropped.
std::vector<graph::LowRank> without_dropout(std::vector<graph::LowRank> changes);

// A, B and magnitudes of each. Of A and B one begins drawn, the other zero, so that nothing changes at first: A
// uniformly from +-1 / sqrt(columns); where rows are read B normally, and A is zero. Magnitudes begin as the norms of
// the weight's rows.
std::vector<Parameter> adapter_parameters(const Model& model, const std::vector<graph::LowRank>& changes,
                                          const AdapterSettings& settings);

}  // namespace lumen::model
