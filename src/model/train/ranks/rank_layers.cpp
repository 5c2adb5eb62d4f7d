#include "model/train/ranks/rank_layers.h"

#include <map>

#include "model/train/offload/offload.h"
#include "model/train/ranks/ranks.h"

namespace lumen::model::train {
namespace {

bool sums_parts(const recipe::Recipe& recipe) {
  const Sharding sharding = sharding_of(recipe);
  return sharding == Sharding::gradients || sharding == Sharding::parameters;
}

}  // namespace

bool ranks_go_by_layers(const run::Device& device, const recipe::Recipe& recipe) {
  return sharding_of(recipe) == Sharding::parameters || goes_by_layers(device, recipe);
}

LayerPlan plan_rank_layers(const run::Device& device, const arch::Model& model, const Method& method,
                           const recipe::Recipe& recipe, const std::vector<Cut>& cuts, int rank, int ranks) {
  const LayersLie lie = sharding_of(recipe) == Sharding::parameters ? LayersLie::with_ranks
                        : offloads_layers(device, recipe)           ? LayersLie::outside
                                                                    : LayersLie::here;
  LayerPlan plan =
      plan_layers(model, method, recipe, lie, offloads_activations(device, recipe), {ranks, sums_parts(recipe)});
  take_records(plan, device, method, recipe, cuts, rank);
  return plan;
}

void take_records(LayerPlan& plan, const run::Device& device, const Method& method, const recipe::Recipe& recipe,
                  const std::vector<Cut>& cuts, int rank) {
  if (!offloads_layers(device, recipe) || !sums_parts(recipe)) return;  // whole parameters, or no offloading
  std::map<int, std::vector<PagedTensor>> parameters, gradients;
  for (const Cut& cut : cuts) {
    const int layer = graph::layer_of(cut.whole.name);
    if (layer < 0) continue;
    std::vector<PagedTensor>&of_layer = parameters[layer], &sums = gradients[layer];
    if (cut.rows_of(rank) == 0) continue;
    of_layer.push_back({cut.whole.name, cut.part_of(method.held().type_of(cut.whole), rank), 0});
    sums.push_back(
        {recipe::kGradient + cut.whole.name, cut.part_of({cut.whole.shape, {Scalar::f32, nullptr}}, rank), 0});
  }
  const bool in_parts = sharding_of(recipe) == Sharding::parameters;
  if (in_parts) plan.group_of.clear();
  std::vector<std::vector<PagedTensor>> all, of_gradients(in_parts ? 0 : plan.parameters.size());
  for (auto& [layer, tensors] : parameters) {
    if (in_parts) {
      plan.group_of[layer] = all.size();
      all.push_back(std::move(tensors));
      of_gradients.push_back(std::move(gradients[layer]));
    } else {
      of_gradients.at(plan.group_of.at(layer)) = std::move(gradients[layer]);
    }
  }
  if (in_parts) plan.parameters = placed(std::move(all));
  plan.gradients = placed(std::move(of_gradients));
}

}  // namespace lumen::model::train
