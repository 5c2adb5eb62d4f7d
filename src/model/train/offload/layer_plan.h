// The plan of a step by layers, before any memory is allocated: parts, their graphs, page groups of offloaded tensors,
// and the activations between layers. Independent of the device. Proved by
// tests/model/train/offload/layer_step_test.cpp.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "model/train/offload/layer_graphs.h"
#include "model/train/offload/tensor_pager.h"

namespace lumen::model::train {

constexpr size_t kParameterSlots = 3;  // one is loaded, one used, one stored
constexpr size_t kGradientSlots = 2;
constexpr size_t kKeptSlots = 3;

struct LayerPlan {
  struct Part {
    graph::LayerPart part;
    std::map<std::string, std::string> names;  // parameter names, by the names in the graph
    // The last part has no separate forward graph. `more`: where further batches add to the first one's gradients.
    std::optional<graph::Graph> forward, backward, more;
    // Activations that the backward graph reads of the forward pass and that are paged meanwhile, by input name. For
    // the last part, the values carried to it.
    std::vector<graph::Passes::Kept> kept;
  };
  std::vector<Part> parts, evaluated;  // of equal length
  std::vector<graph::LayerCut::Carried> carried;
  bool sums_elsewhere = false;  // gradients are those of one batch, summed by the store (StepPart::alone)

  bool keeps_outside = false;  // activations that backward graphs read are paged
  // Those activations, a group for each part.
  std::vector<PageGroup> kept;
  bool has_kept(size_t part, const std::string& input) const;
  std::string paged_name(size_t part, const std::string& input) const;

  // Offloaded parameters of layers, and gradients of those that are trained, a group for each layer. For sharded ranks
  // their shards (train/ranks/rank_layers.h).
  std::map<int, size_t> group_of;
  std::vector<PageGroup> parameters, gradients;

  // Names of the tensors carried between layers: the forward pass keeps all, unless they are paged; in the backward
  // pass and in evaluations two tensors of a kind alternate.
  std::string kept_name(int carried_number) const;
  std::string gradient_name(int carried_number) const;
  int64_t between_bytes() const;
};

// Storage of the parameters of a step by layers: offloaded, sharded over ranks, or on the device with only the
// activations between the passes paged.
enum class LayersLie : uint8_t { outside, with_ranks, here };

// Ranks that share a step's batches. `sums_elsewhere`: each rank gets sums of its parts of gradients.
struct AmongRanks {
  int ranks = 1;
  bool sums_elsewhere = false;
};

// Error (user, usage) when the recipe needs a feature of whole steps. `keeps_outside`: activations that backward graphs
// read are paged, and the recipe's recomputation decides how many are kept; otherwise layers are wholly recomputed.
LayerPlan plan_layers(const arch::Model& model, const Method& method, const recipe::Recipe& recipe,
                      LayersLie lie = LayersLie::outside, bool keeps_outside = false, AmongRanks among = {});

}  // namespace lumen::model::train
