// What a run trains, and its graphs: the trainer compiles the same graphs that the forecast plans. Two ways to train:
// all parameters, decoded to floats, or adapters on weights that stay as stored in their file. Depends on models and
// recipes, not on devices. Proved by tests/model/train/train_test.cpp and tests/model/train/adapter/lora_test.cpp.
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

namespace lumen::model::train {

inline constexpr const char* kWeights = "weights";  // input: weight of each position's loss

// Per-position inputs of a batch: weights of the losses, and where packed sequences that share a row start.
struct BatchForm {
  bool weights = false, starts = false;
};

class Method {
 public:
  // Only the types of the model's weights are read; weights without a type count as f32. Error when the family cannot
  // be trained, or lacks something that the recipe needs. `teacher`: another model, where the recipe names one.
  Method(const arch::Model& model, const recipe::Recipe& recipe, BatchForm form, const arch::Model* teacher = nullptr);

  // Base weights are frozen: only adapters are trained.
  bool is_frozen() const { return !changes_.empty(); }
  const std::vector<arch::Parameter>& trained() const { return trained_; }  // weights and learned fields, or adapters
  // Tensors that tensor-parallel ranks (recipe.tensor_parallel) hold in parts: parameters and, by their names,
  // gradients and states; null: this process holds whole tensors. And parameters with the shapes of one rank.
  const graph::TensorSplit* partition() const { return partition_ ? &*partition_ : nullptr; }
  std::vector<arch::Parameter> trained_here() const;
  std::string partition_text() const;  // printable
  const recipe::Holding& held() const { return held_; }
  // Products round their operands to a 16-bit float.
  bool has_short_products() const { return options_.products.scalar != Scalar::f32; }
  const recipe::Optimizer& optimizer() const { return optimizer_; }
  const FormatLibrary& formats() const { return model_.family->library().formats(); }
  const std::vector<graph::FormatAssignment>& roundings() const { return roundings_; }
  const std::vector<LearnedField>& learned() const { return learned_; }
  // Trained scales of product operands (graph/pass/learned_scales.h).
  const std::vector<graph::LearnedScale>& scales() const { return scales_; }
  const std::vector<graph::LowRank>& changes() const { return changes_; }
  // The shipped form, where the adapter is inside the rounding; null elsewhere.
  const Shipping* shipping() const { return shipping_ ? &*shipping_ : nullptr; }

  struct Work {
    graph::Graph graph;
    run::CompileOptions options;
  };
  Work step() const;        // of one batch: gradients and update
  Work accumulate() const;  // adds the gradients of one of several batches
  Work apply() const;       // the update after the last batch
  // The same for ranks that hold parts of the parameters (optimizer.h).
  Work gradients() const;
  Work apply(const std::vector<arch::Parameter>& parts) const;
  // The scales that formats fit to the activations of a batch, by scale name: initial values of learned scales.
  Work fits() const;
  Work gradients_apart() const;       // of one batch; updates are computed separately (train/offload)
  Work evaluation() const;            // rows x length losses
  Work logits(int64_t length) const;  // of one row: the family's `forward`
  // The graph that a step differentiates, its compile options, and the losses of evaluations, for steps by layers
  // (train/offload).
  const graph::Graph& loss() const { return loss_; }
  const run::CompileOptions& options() const { return options_; }
  graph::Graph token_losses() const;
  double operations() const;  // in the products of one step, over all its batches (graph::training_work)

  const recipe::Objective* objective() const { return objective_ ? &*objective_ : nullptr; }
  // Divisor of each batch's loss before the losses are added; 1 where position weights sum to 1 over all batches.
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
  graph::Graph apart(graph::Graph function) const;  // separates sequences that share a row
  graph::Graph author() const;                      // the function that the loss is computed from
  // `scales` receives the learned operand scales; null: operands have no learned scales.
  graph::Graph loss_of(const graph::Graph& author, std::vector<graph::LearnedScale>* scales) const;
  std::vector<arch::Parameter> scale_parameters() const;
  bool learns_scale_of(const std::string& scale) const;
  graph::Graph with_scales(graph::Graph g) const;  // operands under the learned scales, as in steps
  // The method's changes to a function: in steps, and in evaluations.
  graph::Changes changes_of(const graph::Graph& function) const;
  graph::Changes evaluated_changes(const graph::Graph& function) const;
  // Logits of another model, or of this one without its adapter.
  std::optional<graph::Graph> teacher() const;
  graph::Graph reference_logits() const;
  Work evaluated(const graph::Graph& author, const graph::Changes& changes, const graph::Stage& objective = {}) const;
  Work evaluated(const graph::Graph& author, const graph::Changes& changes, const graph::Stage& objective,
                 const graph::Bindings& symbols) const;
  bool objective_of_rows() const { return objective_ && objective_->reads("logp"); }

  const arch::Model& model_;
  const recipe::Recipe& recipe_;
  BatchForm form_;
  const arch::Model* teacher_;
  std::optional<recipe::Objective> objective_;
  graph::Graph loss_;
  run::CompileOptions options_;
  std::vector<arch::Parameter> trained_;
  recipe::Holding held_;
  recipe::Optimizer optimizer_;
  std::vector<graph::FormatAssignment> roundings_;
  std::vector<LearnedField> learned_;
  std::vector<graph::LearnedScale> scales_;
  std::vector<graph::LowRank> changes_;
  std::optional<Shipping> shipping_;
  std::optional<graph::TensorSplit> partition_;
};

// The recipe's window length, or else the model's context length.
int64_t window_length(const arch::Model& model, const recipe::Recipe& recipe);

}  // namespace lumen::model::train
