// Training on a device: owns parameters, moments and compiled steps. One step() is one optimizer step over `accumulate`
// batches. Everything random is a function of (seed, step), so restore() followed by step() gives exactly the bits of
// an uninterrupted run. Proved by tests/model/train/train_test.cpp.
//
// May include: base, base/structured, base/threads, graph/grad, graph/transform, model/arch, model/arch/adapter,
// model/data/examples, model/file, model/recipe, model/recipe/objective, model/recipe/record, model/train/method,
// model/train/offload, model/train/ranks, number/codec, number/formula, run/engine, run/engine/feedback.
// Offers: forecast.h, guard.h.
#pragma once

#include <atomic>
#include <filesystem>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "model/arch/adapter/adapter.h"
#include "model/arch/model.h"
#include "model/data/examples/batches.h"
#include "model/file/checkpoint.h"
#include "model/recipe/objective/objective_rows.h"
#include "model/recipe/recipe.h"
#include "model/recipe/record/lora_base.h"
#include "model/train/method/method.h"
#include "model/train/offload/offload.h"
#include "model/train/offload/offloaded_parameters.h"
#include "model/train/ranks/ranks.h"
#include "model/train/ranks/tensor_parts.h"
#include "model/train/trainer/run_state.h"
#include "run/engine/engine.h"

namespace lumen::model::train {

// Error (exit 1) when there is too little training or validation data, the data is not of the objective's kind, or it
// has token ids outside the model's vocabulary: the checks that need no trainer.
void require_tokens(const data::Batches& batches, const arch::Model& model);

class Trainer {
 public:
  // Weights in any format are decoded to the recipe's param_type, unless an adapter is trained: then the weights stay
  // packed, in place if the device can read them there. [[quantize]] rules become fake quantization in training and
  // evaluation. Error (exit 4) when a weight is not finite.
  // `teacher`: the model that the recipe's objective learns from, where it names one; its weights stay packed.
  // `ranks`: the processes that train the same model together, this one included. All have the same recipe, model and
  // data, and call the same functions in the same order: step(), evaluations, save() and so on are collective.
  Trainer(run::Engine& engine, arch::Model model, recipe::Recipe recipe, std::shared_ptr<const data::Batches> batches,
          std::shared_ptr<const arch::Model> teacher = nullptr, std::shared_ptr<run::Communicator> ranks = nullptr);
  ~Trainer();
  // Random windows of a text.
  Trainer(run::Engine& engine, arch::Model model, recipe::Recipe recipe,
          const std::shared_ptr<const data::Dataset>& data);

  // Printable list of decoded weights and their formats; empty when none was decoded.
  const std::string& decoded() const { return decoded_; }

  struct Step {
    double loss = 0, norm = 0, rate = 0, seconds = 0;
    int64_t tokens = 0;
    std::vector<std::pair<std::string, double>> metrics;  // of the recipe's objective
  };
  Step step();  // Error (exit 4) when loss or gradients are not finite; nothing can be saved afterwards
  // Mean nats per token over the first rows of the validation data; 0: all. -1 when `stop` became true.
  double evaluate(int64_t rows = 0, const std::atomic<bool>* stop = nullptr);
  // How many rows evaluate(rows) reads: at most all; with an objective whole batches.
  int64_t evaluated_rows(int64_t rows) const;
  // Likewise, how far the model is from its reference: the mean KL divergence, in nats.
  double divergence(int64_t rows = 0, const std::atomic<bool>* stop = nullptr);
  // With `ema_decay`: the same of the mean of the weights over the steps.
  bool has_average() const { return recipe_.optimizer.ema_decay > 0; }
  double evaluate_average(int64_t rows = 0, const std::atomic<bool>* stop = nullptr);
  // Swaps the averaged and the current weights until called again: for model(), adapter() and rounded().
  void exchange_average();
  // Before the first step: stores the model's outputs for all rows, where the objective compares with them later and
  // the reference cannot be had by leaving the adapter out. Returns early when `stop` became true.
  void remember_reference(const std::atomic<bool>* stop = nullptr);
  // The loss of the current weights on the next batch. Error (exit 4) when it is not finite.
  double prove();
  // Error when there is too little training or validation data, the data is not of the objective's kind, or it has
  // token ids outside the model's vocabulary.
  void require_data() const;
  int64_t done() const { return done_; }  // steps
  const recipe::Recipe& recipe() const { return given_; }
  const data::Batches& batches() const { return *batches_; }
  run::Engine& engine() const { return engine_; }
  RunState& state() { return state_; }  // saved and restored with everything else
  // Whether this process writes files; of several ranks only the first does.
  bool writes() const { return !communicator_ || communicator_->rank() == 0; }
  void meet() const;  // barrier of all ranks
  // The stop request of any rank, agreed on after each step. Without ranks: `own`.
  const std::atomic<bool>* asked_to_stop(const std::atomic<bool>* own);

  // For display: memory on the device, operations of a step (graph::training_work), count of trained numbers.
  struct Held {
    std::string kind;
    int64_t bytes = 0;
  };
  std::vector<Held> memory() const;
  struct HeldIn {
    std::string format;
    int64_t tensors = 0, numbers = 0, bytes = 0;
  };
  std::vector<HeldIn> formats() const;  // formats of the weights in memory
  // Trained parameters, those of all layers as one entry: "layers.*.wq".
  struct Trained {
    std::string what, format;
    int64_t tensors = 0, numbers = 0;
  };
  std::vector<Trained> trained() const;
  double work() const { return work_; }
  int64_t trained_count() const;
  const arch::Model& outline() const { return model_; }  // without weight bytes

  // Frees what only further steps need (programs, moments). Afterwards only the functions that return models, adapters
  // and logits may be called.
  void finish();
  arch::Model model() const;  // with the current weights, f32; in adapter runs the unchanged base weights
  // The same with weights as products read them, where weight scales are learned: the form that files record.
  arch::Model read_model() const;
  // The current adapter, in runs that train one.
  arch::Adapter adapter() const;
  bool has_adapter() const { return method_.is_frozen(); }
  const std::vector<graph::LowRank>& changes() const { return method_.changes(); }
  const Hash& base() const { return base_; }  // hash of the base weights of an adapter
  // The model that training began with: its place, and the hash of its weights (lora_base.h). Recorded in checkpoints
  // and outputs; empty for fresh weights.
  struct Origin {
    std::string place, hash;
  };
  Origin origin() const { return has_adapter() ? Origin{recipe_.base, base_.hex()} : origin_; }
  // The same for the teacher; empty without one.
  Origin taught_by() const { return {teacher_ ? recipe_.objective.teacher : "", teacher_hash_}; }
  void set_origin(Origin origin) { origin_ = std::move(origin); }
  // For an adapter inside a rounding (ship.h): its target formats, and the exact bytes of merged weights.
  const Shipping* shipping() const { return method_.shipping(); }
  arch::Weight shipped(const arch::Parameter& p) const;
  // The logits of one window of tokens, [tokens, vocabulary], from which the losses of evaluate() follow.
  void logits(std::span<const text::TokenId> window, std::span<float> out);
  arch::Model rounded() const;  // with the recipe's formats, as evaluate() reads it; model() without [[quantize]]
  // The model for generating text and writing files: weights in the formats they will be written in, the adapter
  // separate unless it is inside their rounding. Not copied where the processor can read the run's own memory; valid
  // until the next step.
  struct Snapshot {
    arch::Model model;
    std::vector<arch::ScaledAdapter> adapters;
  };
  Snapshot snapshot() const;
  // Whether snapshot() copies the weights.
  static bool snapshot_copies(run::Engine& engine, const recipe::Recipe& recipe);

  // Writes a checkpoint folder and removes none. Error (exit 4) that names the tensor when a weight or a moment is not
  // finite; then no files remain.
  std::filesystem::path save(const std::filesystem::path& out) const;
  // Settings that may differ from the checkpoint's run. Another teacher is logged as a warning.
  struct Changes {
    bool seed = false, teacher = false;
  };
  // Error when the checkpoint is of another model, or a setting differs that must not; exit 4 when it holds a number
  // that is not finite.
  void restore(const file::Checkpoint& checkpoint, Changes allowed = {false, false});
  void restore(const std::filesystem::path& checkpoint);
  // Starts from another run's trained weights or adapter, without its other state. Error when shapes differ.
  void begin_with(const file::Checkpoint& checkpoint);
  // Starts from these A and B, which a residual base needs to equal the given model (train/adapter_init).
  void begin_with(const arch::Adapter& beginning);
  int64_t checkpoint_bytes() const;  // approximate

  std::string explain() const;  // kernels of a step with their latest times

 private:
  // step_kinds.h
  class StepKind;
  class LocalStep;
  class TensorParallelStep;
  class ReplicatedStep;
  class ShardedStep;
  class GradientPass;
  class WholePass;
  class LayerPass;
  std::unique_ptr<StepKind> make_step_kind();

  using Tensors = std::map<std::string, run::DeviceTensorRef>;
  void begin_weights();
  void put_fields(const std::string& weight, const arch::Weight& held);
  void begin_adapter();
  void begin_fields();
  void begin_teacher();
  void begin_average();
  void begin_rests();
  void clear_rests();
  std::vector<float> put_held(const std::string& name, const graph::Shape& shape, std::span<const float> numbers);
  std::vector<uint8_t> encoded(std::span<const float> numbers, const graph::Type& type) const;
  std::vector<float> decoded(std::span<const uint8_t> bytes, const graph::Type& type) const;
  void begin_bounds();
  // trainer_scales.cpp
  void put_scales(const std::string& weight, std::span<const float> numbers);
  void clear_activation_scales();
  std::vector<std::string> activation_scales() const;
  void begin_activation_scales();
  void know_activation_scales();
  void begin_updates();
  void begin_layers();
  void begin_layers_among_ranks();
  run::DeviceTensorRef tensor_or_visitor(const std::string& name, const graph::Type& type);
  void update(double norm);
  std::map<std::string, graph::Type> all_types() const;
  TensorPager* store(const std::string& name) const;
  graph::Type type_of(const std::string& name) const;
  void fetch(const std::string& name, std::span<uint8_t> to) const;
  void store(const std::string& name, std::span<const uint8_t> from);
  std::map<std::string, graph::Type> stored() const;
  void put_squares();
  void compile_steps();
  Method::Work recomputing(Method::Work work);
  std::shared_ptr<run::Program> compile(const Method::Work& work);
  run::DeviceTensorRef tensor(const std::string& name, const graph::Type& type);
  void bind_all(run::Program& program);
  void bind_again();
  bool is_trained(const std::string& name) const;
  bool is_saved(const std::string& name) const;  // as a weight
  void set_scalar(const char* name, double value);
  void set_seed(const char* name, uint32_t seed);
  double scalar(run::Program& program, const char* name);
  void put_batch(const data::Batch& batch);
  uint32_t update_seed() const;
  void begin_step(Step& step);
  void read_part(int64_t part);
  void require_finite_step(const Step& step);
  // trainer_ranks.cpp
  void sum_over_ranks(Step& step);
  double mean_over_ranks(double total, double weight, const std::optional<Error>& failure);
  bool has_parts_of_parameters() const { return ranked_ && ranked_->holds_parameters(); }
  bool lies_in_parts(const std::string& name) const;
  graph::Type type_in_parts(const std::string& name) const;
  void agree_before_exchanges(const std::optional<Error>& failure);
  void gather_all();
  std::vector<std::string> states_of(const char* prefix) const;
  void share_histories();
  void share_bounds();
  float gradient_scale(const std::string& state) const;
  void settle_histories() const;
  void check_parts() const;
  std::map<std::string, graph::Type> saved_states() const;
  std::span<const uint8_t> state_bytes(const file::TensorSpec& spec, std::vector<uint8_t>& buffer) const;
  void exchange_parts_of_average();
  // trainer_tensor.cpp
  int64_t data_ranks() const { return grid_.data ? grid_.data->size() : 1; }
  int64_t data_rank() const { return grid_.data ? grid_.data->rank() : 0; }
  void begin_tensor_parts();
  bool is_in_parts(const std::string& name) const { return tensor_parts_ && tensor_parts_->split_of(name); }
  run::DeviceTensorRef weight_tensor(const std::string& name, const arch::Weight& w);
  bool asked_now(const std::atomic<bool>* stop) const;
  void agree_among_all(const std::optional<Error>& failure) const;
  void gather_tensor_parts();
  std::vector<std::string> of_all_parts(const std::vector<std::string>& broken) const;
  run::DeviceTensorRef whole_tensor(const std::string& name, const graph::Type& type);
  // trainer_objective.cpp
  void put_training_batch(const data::Batch& batch);
  void put_rows(const char* name, const std::vector<float>& numbers);
  std::vector<float> reference_of(const data::Batch& batch);
  void require_rows() const;
  void require_validation() const;
  double evaluate_objective(int64_t rows, const std::atomic<bool>* stop);
  std::vector<float> losses_of(const data::Batch& batch);
  // `program` null: the losses of a step by layers.
  std::vector<float> of_positions(run::Program* program, const data::Batch& batch);
  double mean_of_validation(run::Program* program, int64_t rows, const std::atomic<bool>* stop);
  run::Program* evaluation();
  std::vector<float> values(const std::string& name) const;
  std::string broken_gradients();
  void put_values(const std::string& name, const graph::Shape& shape, std::span<const float> numbers,
                  const graph::Element& as = {});

  run::Engine& engine_;
  arch::Model model_;                                // without bytes of trained weights: those are tensors
  std::shared_ptr<run::Communicator> communicator_;  // null: a single process
  RankGrid grid_;
  recipe::Recipe given_, recipe_;  // of all ranks together, and of this rank
  std::shared_ptr<const data::Batches> all_batches_, batches_;
  std::shared_ptr<const arch::Model> teacher_;
  Method method_;
  Hash base_;
  Origin origin_;
  std::string teacher_hash_;
  Tensors tensors_;  // inputs by name: parameters, moments, data
  std::unique_ptr<GradientPass> pass_;
  std::shared_ptr<OffloadedParameters> outside_;  // for offloaded parameters
  std::unique_ptr<GroupedUpdates> updates_;       // where optimizer states are offloaded, or the pass goes by layers
  std::shared_ptr<run::Program> evaluate_, reference_, objective_loss_, divergence_, logits_;
  int64_t logits_length_ = 0;
  recipe::RowLog reference_log_;
  bool goes_on_ = false;  // the adapter comes from another run: without it the model is not this run's start
  std::string decoded_;
  std::map<std::string, std::vector<uint8_t>> rests_;  // optimizer states by name, until their tensors exist
  RunState state_;
  int64_t done_ = 0;
  double work_ = 0;
  bool diverged_ = false;
  bool scales_are_known_ = false;              // scales of activations are initialized by the first batch
  std::unique_ptr<TensorParts> tensor_parts_;  // null: this process holds whole tensors
  std::unique_ptr<RankedStep> ranked_;         // null: no data-parallel ranks
  std::unique_ptr<StepKind> kind_;
  Tensors averages_;                                      // weights, while gathered averages replace them
  std::map<std::string, std::vector<uint8_t>> gathered_;  // by finish(): tensors that ranks held in parts
  const std::atomic<bool>* asked_ = nullptr;
  std::atomic<bool> all_asked_ = false;
};

}  // namespace lumen::model::train
