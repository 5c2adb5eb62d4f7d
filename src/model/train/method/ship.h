// Train what you ship: with [ship] in a recipe an adapter is trained inside the rounding. The loss is that of round(W +
// scale B A) in the formats of the merged model, with straight-through gradients. Weights without an adapter are
// rounded before the first step, so the merged file computes what was trained. Fields of the formats (scales, offsets)
// may be learned too, and each group may have a magnitude (DL-QAT): the decoded values m (q s + b) are those of a group
// with the scale m s and the offset m b. The base stays as its file holds it; sums and their codes exist only within a
// step. Depends on models and graphs, not on devices. Proved by tests/model/train/adapter/ship_test.cpp.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "graph/pipeline/pipeline.h"
#include "model/arch/adapter/adapter.h"
#include "model/recipe/optimizer/held.h"
#include "model/recipe/recipe.h"
#include "model/train/method/learned.h"

namespace lumen::run {
class Engine;
}

namespace lumen::model::train {

class Shipping {
 public:
  Shipping() = default;
  // Error (user) when a weight's format cannot be written, or its fields cannot be learned; error (usage) when the
  // adapter has a part that rounding cannot contain (dropout, row magnitudes).
  Shipping(const arch::Model& model, const recipe::Recipe& recipe, const std::vector<graph::LowRank>& changes);

  // Replaces weights that a function of the family reads by rounded sums.
  graph::Changes changes(const graph::Graph& function) const;
  // Parameters trained in addition to A and B: fields and magnitudes.
  const std::vector<LearnedField>& learned() const { return learned_; }
  std::vector<arch::Parameter> parameters() const;
  // Sets the learning-rate factor of parameters that `trains` leaves out to 0.
  void hold_still(std::vector<arch::Parameter>& trained) const;

  // The format a weight is written in; null: floats.
  FormatRef format_of(const std::string& parameter) const;
  bool is_changed(const std::string& parameter) const;
  int file_type() const { return file_type_; }

 private:
  recipe::ShipSettings settings_;
  std::map<std::string, FormatRef> formats_;  // of rounded weights, with or without an adapter
  std::vector<graph::RoundedSum> sums_;
  std::vector<graph::FormatAssignment> roundings_;
  std::vector<LearnedField> learned_;
  std::map<std::string, graph::Shape> magnitudes_;  // by weight
  int file_type_ = -1;
};

// Rounds weights without an adapter to the formats they ship in.
void round_unchanged(run::Engine& engine, arch::Model& model, const Shipping& shipping);

// One weight in its shipped form: base and adapter summed and rounded as in the training graph. `values`: learned
// fields and magnitudes, by parameter name.
arch::Weight shipped_weight(run::Engine& engine, const arch::Parameter& p, const arch::Weight& base,
                            const arch::Adapter& adapter, const Shipping& shipping,
                            const std::map<std::string, std::vector<float>>& values);

}  // namespace lumen::model::train
