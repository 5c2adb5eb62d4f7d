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

namespace lumen::model {

constexpr size_t kParameterSlots = 3;  // one is loaded, one used, one stored
constexpr size_t kGradientSlots = 2;
constexpr size_t kKeptSlots = 3;

struct LayerPlan {
  struct Part {
    graph::LayerPart part;
    std::map<std::string, std::string> names;  // of parameters, by what the graph calls them
    // The last part has no forward graph of its own. `more`: where further batches add to the first one's gradients.
    std::optional<graph::Graph> forward, backward, more;
    // What the backward graph reads of the forward pass, where that lies outside of the device meanwhile: by the names
    // of its inputs. Of the last part what was handed to it.
    std::vector<graph::Passes::Kept> kept;
  };
  std::vector<Part> parts, evaluated;  // as many
  std::vector<graph::LayerCut::Carried> carried;
  bool sums_elsewhere = false;  // gradients are those of one batch, whoever takes them sums (StepPart::alone)

  bool keeps_outside = false;  // activations that backward graphs read are paged
  // Those activations, a group for each part.
  std::vector<PageGroup> kept;
  bool has_kept(size_t part, const std::string& input) const;
  std::string paged_name(size_t part, const std::string& input) const;

  // What lies outside of parameters of layers, and of gradients of those that are trained, a group for each layer. Of
  // ranks that hold parts their parts (train/ranks/rank_layers.h).
  std::map<int, size_t> group_of;
  std::vector<PageGroup> parameters, gradients;

  // Under which a tensor that layers hand to each other is known: forward all are kept, unless they lie outside,
  // backward and in evaluations two of a kind take turns.
  std::string kept_name(int carried_number) const;
  std::string gradient_name(int carried_number) const;
  int64_t between_bytes() const;
};

// Where parameters of a step by layers are: outside of the device, in pieces with other ranks, or on the device, which
// what the forward pass keeps for the backward pass is not.
enum class LayersLie : uint8_t { outside, with_ranks, here };

// Ranks that share a step's batches. `sums_elsewhere`: each gets sums of its parts of gradients.
struct AmongRanks {
  int ranks = 1;
  bool sums_elsewhere = false;
};

// Error (user, usage) when the recipe asks for what only a step as a whole does. `keeps_outside`: what backward graphs
// read of the forward pass lies outside, and as much of it is kept as the recipe does not compute again; elsewhere all
// of a layer is computed again.
LayerPlan plan_layers(const Model& model, const Method& method, const Recipe& recipe,
                      LayersLie lie = LayersLie::outside, bool keeps_outside = false, AmongRanks among = {});

}  // namespace lumen::model
