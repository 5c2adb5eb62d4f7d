// What a run trains, and the graphs of it: those the trainer compiles are those the forecast plans. Two ways to train:
// all parameters, decoded to floats, or adapters beside weights that stay as their file holds them. Knows models and
// recipes, no device. Proved by tests/model/train/train_test.cpp and tests/model/train/adapter/lora_test.cpp.
//
// May include: base, graph/grad, graph/partition, graph/pass, graph/pipeline, graph/transform, model/arch,
// model/arch/adapter, model/compress, model/recipe, model/recipe/objective, model/recipe/optimizer, number/codec,
// number/facts, run/device, run/engine.
// Offers: lora.h, machine_floats.h, recomputation.h.
#pragma once

#include <optional>
#include <vector>

#include "graph/partition/partition.h"
#include "graph/pass/learned_scales.h"
#include "graph/pipeline/pipeline.h"
#include "model/arch/model.h"
#include "model/recipe/objective/objective.h"
#include "model/recipe/optimizer/optimizer.h"
#include "model/recipe/recipe.h"
#include "model/train/method/learned.h"
#include "model/train/method/ship.h"
#include "run/engine/engine.h"

namespace lumen::model {

inline constexpr const char* kWeights = "weights";  // what the loss of each position counts

// What batches say of positions: what the loss of each counts, and where sequences that share a row begin.
struct BatchForm {
  bool weights = false, starts = false;
};

class Method {
 public:
  // Only the types of the model's weights are looked at;
  // weights that are not there are f32. Error when the family cannot be trained, or the recipe asks for what it has
  // not. `teacher`: another model, as the recipe names one.
  Method(const Model& model, const Recipe& recipe, BatchForm form, const Model* teacher = nullptr);

  // Weights stay as they are: only adapters are trained.
  bool is_frozen() const { return !changes_.empty(); }
  const std::vector<Parameter>& trained() const { return trained_; }  // weights and learned fields, or adapters
  // Which tensors are held in parts by ranks that hold one model together (recipe.tensor_parallel): parameters,
  // and by their names gradients and states; null: this process holds all. And parameters as one rank has them.
  const graph::TensorSplit* partition() const { return partition_ ? &*partition_ : nullptr; }
  std::vector<Parameter> trained_here() const;
  std::string partition_text() const;  // for people
  const Holding& held() const { return held_; }
  // Products round what they multiply to a 16-bit float.
  bool has_short_products() const { return options_.products.scalar != Scalar::f32; }
  const Optimizer& optimizer() const { return optimizer_; }
  const FormatLibrary& formats() const { return model_.family->library().formats(); }
  const std::vector<graph::FormatAssignment>& roundings() const { return roundings_; }
  const std::vector<LearnedField>& learned() const { return learned_; }
  // Scales of operands of products that are trained (graph/pass/learned_scales.h).
  const std::vector<graph::LearnedScale>& scales() const { return scales_; }
  const std::vector<graph::LowRank>& changes() const { return changes_; }
  // What is shipped, where the adapter is inside the rounding; null elsewhere.
  const Shipping* shipping() const { return shipping_ ? &*shipping_ : nullptr; }

  struct Work {
    graph::Graph graph;
    run::CompileOptions options;
  };
  Work step() const;        // of one batch
  Work accumulate() const;  // of one batch of several
  Work apply() const;       // after the last of them
  // The same of ranks that have parts of the parameters (optimizer.h).
  Work gradients() const;
  Work apply(const std::vector<Parameter>& parts) const;
  // What formats fit to the activations of a batch, by the names of their scales: where those begin.
  Work fits() const;
  Work gradients_apart() const;       // of one batch, whose updates are computed apart (train/offload)
  Work evaluation() const;            // rows x length losses
  Work logits(int64_t length) const;  // of one row: the family's `forward`
  // What a step differentiates, how it is compiled, and what evaluations compute: for steps by layers (train/offload).
  const graph::Graph& loss() const { return loss_; }
  const run::CompileOptions& options() const { return options_; }
  graph::Graph token_losses() const;
  double operations() const;  // of the products of one step, all its batches (graph::training_work)

  const Objective* objective() const { return objective_ ? &*objective_ : nullptr; }
  // By what the losses of a step's batches are divided before they are added: weights sum to 1 over all of them.
  int parts() const { return !objective_of_rows() && form_.weights ? 1 : static_cast<int>(recipe_.accumulate); }
  Work reference() const;       // rows x length losses of the model without its adapter
  Work divergence() const;      // rows x length: from the teacher, or from the model without its adapter
  Work objective_loss() const;  // "loss", and metrics, of one batch

 private:
  Work finished(graph::Graph graph) const;
  void add_stored_formats(Work& work) const;
  void partition_tensors();
  Work in_parts(Work work) const;
  graph::Graph function(const char* name) const;    // of the model's family, as its author wrote it
  graph::Graph apart(graph::Graph function) const;  // where sequences share rows
  graph::Graph author() const;                      // what the loss is made of
  // `scales`: takes what is learned of operands; null: they are as they are.
  graph::Graph loss_of(const graph::Graph& author, std::vector<graph::LearnedScale>* scales) const;
  std::vector<Parameter> scale_parameters() const;
  bool learns_scale_of(const std::string& scale) const;
  graph::Graph with_scales(graph::Graph g) const;  // operands under the scales that are learned, as steps have them
  // What the method changes of a function: in steps, and in evaluations.
  graph::Changes changes_of(const graph::Graph& function) const;
  graph::Changes evaluated_changes(const graph::Graph& function) const;
  // Logits of another model, or of this one without its adapter.
  std::optional<graph::Graph> teacher() const;
  graph::Graph reference_logits() const;
  Work evaluated(const graph::Graph& author, const graph::Changes& changes, const graph::Stage& objective = {}) const;
  Work evaluated(const graph::Graph& author, const graph::Changes& changes, const graph::Stage& objective,
                 const graph::Bindings& symbols) const;
  bool objective_of_rows() const { return objective_ && objective_->reads("logp"); }

  const Model& model_;
  const Recipe& recipe_;
  BatchForm form_;
  const Model* teacher_;
  std::optional<Objective> objective_;
  graph::Graph loss_;
  run::CompileOptions options_;
  std::vector<Parameter> trained_;
  Holding held_;
  Optimizer optimizer_;
  std::vector<graph::FormatAssignment> roundings_;
  std::vector<LearnedField> learned_;
  std::vector<graph::LearnedScale> scales_;
  std::vector<graph::LowRank> changes_;
  std::optional<Shipping> shipping_;
  std::optional<graph::TensorSplit> partition_;
};

// The recipe's windows, or as many tokens as the model's context.
int64_t window_length(const Model& model, const Recipe& recipe);

}  // namespace lumen::model
