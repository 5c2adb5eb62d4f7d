// The plan of a step by layers in one of several ranks, and which of its parameters, gradients, or parts of them are
// offloaded. Depends on models and recipes, allocates no device memory. Proved by
// tests/model/train/ranks/offloaded_ranks_test.cpp.
#pragma once

#include <vector>

#include "model/train/offload/layer_plan.h"
#include "model/train/ranks/cuts.h"
#include "run/device/device.h"

namespace lumen::model::train {

// Whether steps of ranks that share a batch go by layers.
bool ranks_go_by_layers(const run::Device& device, const recipe::Recipe& recipe);
// The plan of such steps. `recipe`: of a rank. Page groups are those of `rank`.
LayerPlan plan_rank_layers(const run::Device& device, const arch::Model& model, const Method& method,
                           const recipe::Recipe& recipe, const std::vector<Cut>& cuts, int rank, int ranks);
// Replaces the page groups in such a plan by another rank's.
void take_records(LayerPlan& plan, const run::Device& device, const Method& method, const recipe::Recipe& recipe,
                  const std::vector<Cut>& cuts, int rank);

}  // namespace lumen::model::train
