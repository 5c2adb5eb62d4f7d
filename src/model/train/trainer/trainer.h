// Training on a device: parameters, moments and compiled steps live here. One step() is one optimizer step over
// `accumulate` batches. Everything random is a function of (seed, step), so restore() followed by step() gives the very
// bits that an uninterrupted run gives. Proved by tests/model/train/train_test.cpp.
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
#include "model/train/offload/layer_step.h"
#include "model/train/offload/offload.h"
#include "model/train/offload/offloaded_parameters.h"
#include "model/train/ranks/rank_layers.h"
#include "model/train/ranks/ranks.h"
#include "model/train/ranks/tensor_parts.h"
#include "model/train/trainer/run_state.h"
#include "run/engine/engine.h"

namespace lumen::model {

// Error (exit 1) when there is too little training or validation data, it is not what the objective is of, or it has
// ids the model has no rows for: what can be said before a trainer is made.
void require_tokens(const Batches& batches, const Model& model);

class Trainer {
 public:
  // Weights in any format are decoded to the recipe's param_type, unless an adapter is trained beside them: then they
  // stay packed, where they lie if the device can read them there. [[quantize]] rules become fake quantization of
  // training and evaluation. Error (exit 4) when a weight is not finite.
  // `teacher`: the model that the recipe's objective learns from, where it names one; its weights stay packed.
  // `ranks`: who trains the same model together with this process. All have the same recipe, model and data, and call
  // the same functions in the same order: step(), evaluations, save() and so on are done together.
  Trainer(run::Engine& engine, Model model, Recipe recipe, std::shared_ptr<const Batches> batches,
          std::shared_ptr<const Model> teacher = nullptr, std::shared_ptr<run::Communicator> ranks = nullptr);
  // Random windows of a text.
  Trainer(run::Engine& engine, Model model, Recipe recipe, const std::shared_ptr<const Dataset>& data);

  // What was decoded from what, for people; empty when nothing was.
  const std::string& decoded() const { return decoded_; }

  struct Step {
    double loss = 0, norm = 0, rate = 0, seconds = 0;
    int64_t tokens = 0;
    std::vector<std::pair<std::string, double>> metrics;  // of the recipe's objective
  };
  Step step();  // Error (exit 4) when loss or gradients are not finite; nothing can be saved afterwards
  // Mean nats per token over the first rows of the validation data; 0: all. -1 when `stop` became true.
  double evaluate(int64_t rows = 0, const std::atomic<bool>* stop = nullptr);
  // Likewise, how far the model is from its reference: the mean KL divergence, in nats.
  double divergence(int64_t rows = 0, const std::atomic<bool>* stop = nullptr);
  // With `ema_decay`: the same of the mean of the weights over the steps.
  bool has_average() const { return recipe_.optimizer.ema_decay > 0; }
  double evaluate_average(int64_t rows = 0, const std::atomic<bool>* stop = nullptr);
  // The mean and the weights take each other's places, until it is called again: for model(), adapter() and rounded().
  void exchange_average();
  // Before the first step: what the model makes of all rows, where the objective compares with it later and no adapter
  // can be left away for that. Returns early when `stop` became true.
  void remember_reference(const std::atomic<bool>* stop = nullptr);
  // The loss of the weights as they are on the batch that comes next. Error (exit 4) when it is not finite.
  double prove();
  // Error when there is too little training or validation data, it is not what the objective is of, or it has ids the
  // model has no rows for.
  void require_data() const;
  int64_t done() const { return done_; }  // steps
  const Recipe& recipe() const { return given_; }
  const Batches& batches() const { return *batches_; }
  run::Engine& engine() const { return engine_; }
  RunState& state() { return state_; }  // saved and restored with everything else
  // Whether this process writes files; of several ranks the first does.
  bool writes() const { return !communicator_ || communicator_->rank() == 0; }
  void meet() const;  // all ranks come here before any goes on
  // What all ranks have been asked to do, once one has been: known after each step. Alone: what it is given.
  const std::atomic<bool>* asked_to_stop(const std::atomic<bool>* own);

  // For people: what lies on the device, the operations of a step (graph::training_work), numbers that are trained.
  struct Held {
    std::string kind;
    int64_t bytes = 0;
  };
  std::vector<Held> memory() const;
  struct HeldIn {
    std::string format;
    int64_t tensors = 0, numbers = 0, bytes = 0;
  };
  std::vector<HeldIn> formats() const;  // that weights are held in
  // What is trained, parameters of all layers as one: "layers.*.wq".
  struct Trained {
    std::string what, format;
    int64_t tensors = 0, numbers = 0;
  };
  std::vector<Trained> trained() const;
  double work() const { return work_; }
  int64_t trained_count() const;
  const Model& outline() const { return model_; }  // without bytes of weights

  // Frees what only further steps need (programs, moments); afterwards only what gives models, adapters and logits
  // may be called.
  void finish();
  Model model() const;  // with the weights as they are now, f32; beside an adapter as they were
  // The same with weights as products read them, where scales of weights are learned: what a file says of the model.
  Model read_model() const;
  // The adapter as it is now, in runs that train one.
  Adapter adapter() const;
  bool has_adapter() const { return method_.is_frozen(); }
  const std::vector<graph::LowRank>& changes() const { return method_.changes(); }
  const Hash& base() const { return base_; }  // of the weights an adapter is trained beside
  // The model it began with: its place, and the hash of its weights (lora_base.h). Recorded in checkpoints and outputs;
  // empty where weights were fresh.
  struct Origin {
    std::string place, hash;
  };
  Origin origin() const { return has_adapter() ? Origin{recipe_.base, base_.hex()} : origin_; }
  // The same of its teacher; empty where it has none.
  Origin taught_by() const { return {teacher_ ? recipe_.objective.teacher : "", teacher_hash_}; }
  void set_origin(Origin origin) { origin_ = std::move(origin); }
  // For an adapter inside a rounding (ship.h): the formats it is trained for, and merged weights in the very bytes.
  const Shipping* shipping() const { return method_.shipping(); }
  Weight shipped(const Parameter& p) const;
  // The logits of one window of tokens, [tokens, vocabulary]: what the losses of evaluate() follow from.
  void logits(std::span<const TokenId> window, std::span<float> out);
  Model rounded() const;  // with the recipe's formats, as evaluate() sees it; model() without [[quantize]]
  // What is asked and written with: the weights in the formats in which they will be written, the adapter beside them
  // unless it is inside of their rounding. Where the processor reads what the run holds, nothing is copied: it is of
  // use until the next step.
  struct Snapshot {
    Model model;
    std::vector<ScaledAdapter> adapters;
  };
  Snapshot snapshot() const;
  // Whether that takes another copy of the weights.
  static bool snapshot_copies(run::Engine& engine, const Recipe& recipe);

  // Writes a checkpoint folder and removes none. Error (exit 4) that names the tensor when a weight or a moment is not
  // finite; nothing is left behind then.
  std::filesystem::path save(const std::filesystem::path& out) const;
  // What may be another than the checkpoint's run had. Another teacher is told with a warning.
  struct Changes {
    bool seed = false, teacher = false;
  };
  // Error when it belongs to another model, or something has changed that may not; exit 4 when it holds a number that
  // is not finite.
  void restore(const Checkpoint& checkpoint, Changes allowed = {false, false});
  void restore(const std::filesystem::path& checkpoint);
  // Begins with what another run trained, weights or an adapter, and nothing else of it. Error when it is of another
  // shape.
  void begin_with(const Checkpoint& checkpoint);
  // Begins with these A and B, without which the model is not what was given (rewrite/rewrite.h).
  void begin_with(const Adapter& beginning);
  int64_t checkpoint_bytes() const;  // about

  std::string explain() const;  // kernels of a step with their last times

 private:
  using Tensors = std::map<std::string, run::DeviceTensorRef>;
  void begin_weights();
  void put_fields(const std::string& weight, const Weight& held);
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
  void update();
  std::map<std::string, graph::Type> all_types() const;
  TensorPager* store(const std::string& name) const;
  graph::Type type_of(const std::string& name) const;
  void fetch(const std::string& name, std::span<uint8_t> to) const;
  void store(const std::string& name, std::span<const uint8_t> from);
  double square(const std::string& parameter);
  run::Program& last_of_step() const;
  std::map<std::string, graph::Type> stored() const;
  void put_squares();
  void compile_steps();
  Method::Work recomputing(Method::Work work);
  std::shared_ptr<run::Program> compile(const Method::Work& work);
  run::DeviceTensorRef tensor(const std::string& name, const graph::Type& type);
  void bind_all(run::Program& program);
  bool is_trained(const std::string& name) const;
  bool is_saved(const std::string& name) const;  // as a weight
  void set_scalar(const char* name, double value);
  void set_seed(const char* name, uint32_t seed);
  double scalar(run::Program& program, const char* name);
  void put_batch(const Batch& batch);
  uint32_t update_seed() const;
  void begin_step(Step& step);
  void read_part(int64_t part);
  // `failure`: see LayerStep::run.
  void run_part(Step& step, int64_t part, std::optional<Error>* failure = nullptr);
  // trainer_ranks.cpp
  Step step_among_ranks();
  void sum_over_ranks(Step& step);
  void update_among_ranks(Step& step);
  [[noreturn]] void throw_not_finite(const Step& step, const std::string& broken);
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
  std::span<const uint8_t> state_bytes(const TensorSpec& spec, std::vector<uint8_t>& buffer) const;
  void exchange_parts_of_average();
  // trainer_tensor.cpp
  int64_t data_ranks() const { return grid_.data ? grid_.data->size() : 1; }
  int64_t data_rank() const { return grid_.data ? grid_.data->rank() : 0; }
  void begin_tensor_parts();
  bool is_in_parts(const std::string& name) const { return tensor_parts_ && tensor_parts_->split_of(name); }
  run::DeviceTensorRef weight_tensor(const std::string& name, const Weight& w);
  bool asked_now(const std::atomic<bool>* stop) const;
  void agree_among_all(const std::optional<Error>& failure) const;
  void gather_tensor_parts();
  std::vector<std::string> of_all_parts(const std::vector<std::string>& broken) const;
  run::DeviceTensorRef whole_tensor(const std::string& name, const graph::Type& type);
  // trainer_objective.cpp
  void put_training_batch(const Batch& batch);
  void put_rows(const char* name, const std::vector<float>& numbers);
  std::vector<float> reference_of(const Batch& batch);
  void require_rows() const;
  void require_validation() const;
  double evaluate_objective(int64_t rows, const std::atomic<bool>* stop);
  std::vector<float> losses_of(const Batch& batch);
  // `program` null: the losses of a step by layers.
  std::vector<float> of_positions(run::Program* program, const Batch& batch);
  double mean_of_validation(run::Program* program, int64_t rows, const std::atomic<bool>* stop);
  run::Program* evaluation();
  std::vector<float> values(const std::string& name) const;
  std::string broken_gradients();
  void put_values(const std::string& name, const graph::Shape& shape, std::span<const float> numbers,
                  const graph::Element& as = {});

  run::Engine& engine_;
  Model model_;                                      // without bytes of weights that are trained: those are tensors
  std::shared_ptr<run::Communicator> communicator_;  // null: alone
  RankGrid grid_;
  Recipe given_, recipe_;  // of all ranks together, and this one's
  std::shared_ptr<const Batches> all_batches_, batches_;
  std::shared_ptr<const Model> teacher_;
  Method method_;
  Hash base_;
  Origin origin_;
  std::string teacher_hash_;
  Tensors tensors_;  // inputs by name: parameters, moments, data
  std::shared_ptr<run::Program> step_, accumulate_, apply_, evaluate_;
  std::unique_ptr<LayerStep> layers_;  // in the place of step_ and accumulate_, where parameters lie elsewhere
  std::shared_ptr<OffloadedParameters> outside_;  // where that is outside of the device
  std::unique_ptr<GroupedUpdates> updates_;       // in the place of apply_, where states of the optimizer lie elsewhere
  std::shared_ptr<run::Program> reference_, objective_loss_, divergence_, logits_;
  int64_t logits_length_ = 0;
  RowLog reference_log_;
  bool goes_on_ = false;  // the adapter is another run's: without it the model is not what this run began with
  std::string decoded_;
  std::map<std::string, std::vector<uint8_t>> rests_;  // until their states are there
  RunState state_;
  int64_t done_ = 0;
  double work_ = 0;
  bool diverged_ = false;
  bool scales_are_known_ = false;                         // those of activations, which begin with the first batch
  std::unique_ptr<TensorParts> tensor_parts_;             // null: this process holds all of its model
  std::unique_ptr<RankedStep> ranked_;                    // null: no others share the batch
  Tensors averages_;                                      // weights, while whole means are in their place
  std::map<std::string, std::vector<uint8_t>> gathered_;  // by finish(), what ranks had parts of
  const std::atomic<bool>* asked_ = nullptr;
  std::atomic<bool> all_asked_ = false;
};

}  // namespace lumen::model
