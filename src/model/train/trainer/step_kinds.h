// The kinds of training steps, and the passes that compute a batch's gradients in one process. The trainer makes one of
// each and knows only these interfaces. Proved by tests/model/train/train_test.cpp,
// tests/model/train/offload/layer_step_test.cpp and tests/model/train/ranks/ranks_test.cpp.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "model/train/offload/layer_step.h"
#include "model/train/trainer/trainer.h"

namespace lumen::model::train {

// Who joins in a step: this process alone, a tensor-parallel group, or ranks that share each batch.
class Trainer::StepKind {
 public:
  explicit StepKind(Trainer& t) : t_(t) {}
  virtual ~StepKind() = default;
  // Reads one of the step's batches and adds its gradients, its loss and its metrics.
  virtual void run(Step& step, int64_t part) = 0;
  // After the last batch: the norm of all gradients, and new weights. Error when loss or norm are not finite.
  virtual void finish(Step& step) = 0;
  // After an error in one of these.
  virtual void give_up() {}
  virtual std::vector<std::string> broken();  // parameters whose gradients in the last step are not finite

 protected:
  Trainer& t_;
};

// How this process computes gradients: by one program, or layer by layer.
class Trainer::GradientPass {
 public:
  explicit GradientPass(Trainer& t) : t_(t) {}
  virtual ~GradientPass() = default;
  // Adds the gradients of the batch on the device. `failure`: see LayerStep::run.
  virtual void run(Step& step, int64_t part, std::optional<Error>* failure = nullptr) = 0;
  // The same where other ranks have shares of the batch; then sums of gradients over ranks, where run leaves them.
  virtual void run_among_ranks(Step& step, int64_t part, std::optional<Error>* failure) = 0;
  virtual void reduce() {}
  // After the last batch, in one process: the norm; weights are updated where the programs of the pass do that.
  virtual double finish() = 0;
  // The same where ranks share the batch and none has parts; Error when loss or norm are not finite.
  virtual void update_among_ranks(Step& step) = 0;
  // Parameters whose gradients are not finite.
  virtual std::vector<std::string> broken() = 0;

  // Updates are programs of their own (GroupedUpdates) for states that are paged, or always.
  virtual void compile_before_updates() = 0;
  virtual bool always_updates_apart() const { return false; }
  virtual std::shared_ptr<run::Program> lender() const = 0;
  virtual float clip(double norm) = 0;  // kClip for these updates

  virtual std::shared_ptr<run::Program> program() const { return nullptr; }  // of a batch; null: several
  virtual run::Program* evaluation() { return nullptr; }                     // null: losses() runs without one
  virtual run::DeviceTensorRef losses() { return nullptr; }                  // of all positions of the batch
  virtual std::vector<run::Program*> bound() const { return {}; }            // programs that are bound to weights once
  virtual void add_memory(Held* trained, Held* gradients, Held* values) const = 0;
  virtual std::string explain() const = 0;
  virtual void free_programs() = 0;

 protected:
  Trainer& t_;
};

class Trainer::WholePass : public GradientPass {
 public:
  using GradientPass::GradientPass;
  void compile(Sharding sharding);
  void run(Step& step, int64_t part, std::optional<Error>* failure) override;
  void run_among_ranks(Step& step, int64_t part, std::optional<Error>* failure) override;
  void reduce() override;
  double finish() override;
  void update_among_ranks(Step& step) override;
  std::vector<std::string> broken() override;
  void compile_before_updates() override;
  std::shared_ptr<run::Program> lender() const override { return batch_; }
  float clip(double norm) override;
  std::shared_ptr<run::Program> program() const override { return batch_; }
  run::Program* evaluation() override;
  std::vector<run::Program*> bound() const override;
  void add_memory(Held* trained, Held* gradients, Held* values) const override;
  std::string explain() const override;
  void free_programs() override { batch_ = apply_ = nullptr; }

 private:
  run::Program& last() const { return apply_ ? *apply_ : *batch_; }  // its results include all gradients

  std::shared_ptr<run::Program> batch_, apply_;  // apply_ null: a batch is a step, or updates are elsewhere
};

class Trainer::LayerPass : public GradientPass {
 public:
  LayerPass(Trainer& t, LayerPlan plan, std::shared_ptr<ParameterStore> store, std::unique_ptr<TensorPager> kept);
  void compile_evaluation() { layers_.compile_evaluation(); }
  void run(Step& step, int64_t part, std::optional<Error>* failure) override;
  void run_among_ranks(Step& step, int64_t part, std::optional<Error>* failure) override;
  double finish() override { return layers_.norm(); }
  void update_among_ranks(Step& step) override;
  std::vector<std::string> broken() override;
  void compile_before_updates() override { layers_.compile(); }
  bool always_updates_apart() const override { return true; }
  std::shared_ptr<run::Program> lender() const override { return layers_.lender(); }
  float clip(double norm) override;
  run::DeviceTensorRef losses() override { return layers_.losses(); }
  void add_memory(Held* trained, Held* gradients, Held* values) const override;
  std::string explain() const override { return layers_.explain(); }
  void free_programs() override { layers_.finish(); }

 private:
  LayerStep layers_;
};

}  // namespace lumen::model::train
