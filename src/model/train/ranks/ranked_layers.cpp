// RankedStep in steps by layers: gradients are reduced as the backward pass produces them. Where parameters and
// gradients are offloaded, updates follow layer by layer: each rank updates its parts and sends them to all ranks while
// the layer is resident. All ranks visit all layers in the same order, also those of which they have no parts.
#include <cmath>

#include "base/check.h"
#include "graph/transform/layers.h"
#include "model/train/ranks/ranks.h"
#include "model/train/ranks/replicated_parameters.h"

namespace lumen::model::train {

RankedStep::RankedStep(run::Engine& engine, std::shared_ptr<run::Communicator> ranks, const Method& method,
                       const recipe::Recipe& recipe, Tensors tensors, const LayerPlan& plan,
                       std::shared_ptr<OffloadedParameters> outside)
    : RankedStep(engine, std::move(ranks), method, recipe, std::move(tensors), nullptr, std::move(outside)) {
  open_store(plan);
  if (holds_parameters())
    for (const Cut& cut : cuts_) {
      parameter_types_[cut.whole.name] = held_.type_of(cut.whole);
      state_cuts_[cut.whole.name] = &cut;
    }
  for (const Cut& cut : cuts_)
    if (const int layer = graph::layer_of(cut.whole.name); layer >= 0 && (layers_.empty() || layers_.back() != layer))
      layers_.push_back(layer);
  if (!holds_parts()) return;
  compile_apply(method, recipe);
  if (gathered_in_ && !holds_parameters()) compile_changes();
}

void RankedStep::open_store(const LayerPlan& plan) {
  std::shared_ptr<ParameterStore> whole;
  if (outside_)
    whole = outside_;
  else
    whole = std::make_shared<ResidentParameters>();
  ExchangedParameters exchanged =
      exchanged_parameters(plan, cuts_, held_, {{}, reduced_in_, gathered_in_, overlaps_, holds_parameters()});
  if (holds_parameters()) whole = nullptr;
  if (reduces_each_batch())
    store_ = std::make_shared<ShardedParameters>(engine_, *ranks_, std::move(exchanged), tensors_, whole, outside_);
  else
    store_ =
        std::make_shared<ReplicatedParameters>(engine_, *ranks_, std::move(exchanged), tensors_, whole, !holds_parts());
}

// Adds squares in the same order as a single process and as sharded ranks.
double RankedStep::norm_of_layers() {
  bool begun = false;
  float total = 0;
  for (const Cut& cut : cuts_) {
    if (holds_parts() && cut.rows_of(ranks_->rank()) == 0) continue;
    const float square = store_->squares()->at(cut.whole.name);
    total = begun ? total + square : square;
    begun = true;
  }
  return holds_parts() ? std::sqrt(sum({total})[0]) : double{std::sqrt(total)};
}

// Tensors that updates of this rank's parts read and write, resident or not.
GroupedUpdates::TensorOf RankedStep::updated_tensors(const std::vector<arch::Parameter>& parts) {
  std::map<std::string, const Cut*> gradients, parameters;
  std::map<std::string, run::DeviceTensorRef> bound;
  for (const Cut& cut : cuts_) {
    if (cut.rows_of(ranks_->rank()) == 0) continue;
    gradients[recipe::kGradient + cut.whole.name] = parameters[cut.whole.name] = &cut;
    if (outside_) continue;
    bound[recipe::kGradient + cut.whole.name] = gradient_part(cut);
    bound[cut.whole.name] = bound_part(cut);
  }
  LUMEN_CHECK(gradients.size() == parts.size());
  return [this, gradients = std::move(gradients), parameters = std::move(parameters), bound = std::move(bound)](
             const std::string& name, const graph::Type& type) {
    if (const auto known = bound.find(name); known != bound.end()) return known->second;
    if (const auto cut = gradients.find(name); cut != gradients.end()) return gradient_part(*cut->second);
    if (const auto cut = parameters.find(name); cut != parameters.end())
      return holds_parameters() ? tensors_(name, type) : part(whole(*cut->second, ""), *cut->second, ranks_->rank());
    return tensors_(name, type);
  };
}

void RankedStep::apply_groups(float norm, uint32_t seed, const std::function<void(int, int)>& turn) {
  if (!apply_) return;
  tensors_(recipe::kGivenNorm, {{}, {Scalar::f32, nullptr}})->upload(&norm, sizeof norm);
  apply_->run();  // also clears the gradients
  if (!updates_) return;
  float clip = 0;
  apply_->result("clip")->download(&clip, sizeof clip);
  tensors_(recipe::kClip, {{}, {Scalar::f32, nullptr}})->upload(&clip, sizeof clip);
  updates_->run(seed, turn);
}

// If this rank fails here, others wait in an exchange and end with it.
void RankedStep::apply_by_layers(float norm, uint32_t seed) {
  next_layer_ = 0;
  apply_groups(norm, seed, [this](int from, int to) { turn(from, to); });
  for (; next_layer_ < layers_.size() && !holds_parameters(); ++next_layer_) {
    outside_->turn(-1, layers_[next_layer_]);
    share_layer(layers_[next_layer_]);
    outside_->turn(layers_[next_layer_], -1);
  }
  agree({});
}

// Also visits layers without parts of this rank, on the way to the next one with parts.
void RankedStep::turn(int from, int to) {
  if (holds_parameters()) return outside_->turn(from, to);
  if (from >= 0) {
    share_layer(from);
    outside_->turn(from, -1);
  }
  if (to < 0) return;
  for (; layers_.at(next_layer_) != to; ++next_layer_) {
    outside_->turn(-1, layers_[next_layer_]);
    share_layer(layers_[next_layer_]);
    outside_->turn(layers_[next_layer_], -1);
  }
  ++next_layer_;
  outside_->turn(-1, to);
}

// Sends each rank's rows of a layer's parameters to all others; -1: of parameters in no layer.
void RankedStep::share_layer(int layer) {
  std::vector<const Cut*> cuts;
  for (const Cut& cut : cuts_)
    if (graph::layer_of(cut.whole.name) == layer) cuts.push_back(&cut);
  const Pieces pieces = shared_pieces(cuts, "");
  ranks_->exchange(pieces.to, pieces.from);
}

}  // namespace lumen::model::train
