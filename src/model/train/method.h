// What a run trains, and the graphs of it: those the trainer compiles are those the forecast plans. Two ways to train:
// all parameters, decoded to floats, or adapters beside weights that stay as their file holds them. Knows models and
// recipes, no device. Proved by tests/model/train_test.cpp and tests/model/lora_test.cpp.
#pragma once

#include <vector>

#include "graph/pass/low_rank.h"
#include "model/arch/model.h"
#include "model/train/learned.h"
#include "model/train/recipe.h"
#include "run/engine/engine.h"

namespace lumen::model {

inline constexpr const char* kWeights = "weights";  // what the loss of each position counts

class Method {
 public:
  // `weighted`: batches say what the loss of each position counts. Of the model's weights only types are looked at;
  // weights that are not there are f32. Error when the family cannot be trained, or the recipe asks for what it has
  // not.
  Method(const Model& model, const Recipe& recipe, bool weighted);

  // Weights stay as they are: only adapters are trained.
  bool is_frozen() const { return !changes_.empty(); }
  const std::vector<Parameter>& trained() const { return trained_; }  // weights and learned fields, or adapters
  const Holding& held() const { return held_; }
  const std::vector<graph::FormatAssignment>& roundings() const { return roundings_; }
  const std::vector<LearnedField>& learned() const { return learned_; }
  const std::vector<graph::LowRank>& changes() const { return changes_; }
  const graph::Graph& loss() const { return loss_; }  // of a batch

  struct Work {
    graph::Graph graph;
    run::CompileOptions options;
  };
  Work step() const;        // of one batch
  Work accumulate() const;  // of one batch of several
  Work apply() const;       // after the last of them
  Work evaluation() const;  // rows x length losses

 private:
  Work finished(graph::Graph graph) const;

  const Model& model_;
  const Recipe& recipe_;
  bool weighted_;
  graph::Graph loss_;
  run::CompileOptions options_;
  std::vector<Parameter> trained_;
  Holding held_;
  std::vector<graph::FormatAssignment> roundings_;
  std::vector<LearnedField> learned_;
  std::vector<graph::LowRank> changes_;
};

// The recipe's windows, or as many tokens as the model's context.
int64_t window_length(const Model& model, const Recipe& recipe);

}  // namespace lumen::model
