// Training on a device: parameters, moments and compiled steps live here. One step() is one optimizer step over
// `accumulate` batches. Everything random is a function of (seed, step), so restore() followed by step() gives the very
// bits that an uninterrupted run gives. Proved by tests/model/train_test.cpp.
#pragma once

#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "model/arch/model.h"
#include "model/file/checkpoint.h"
#include "model/text/dataset.h"
#include "model/train/learned.h"
#include "model/train/recipe.h"
#include "run/engine/engine.h"

namespace lumen::model {

// Bytes of parameters, gradients and moments a training run needs; for refusing early.
int64_t training_bytes(const Model& model);

class Trainer {
 public:
  // `model` must be f32. The recipe's [[quantize]] rules become fake quantization of training and evaluation.
  Trainer(run::Engine& engine, Model model, Recipe recipe, std::shared_ptr<const Dataset> data);

  struct Step {
    double loss = 0, norm = 0, rate = 0, seconds = 0;
    int64_t tokens = 0;
  };
  Step step();                            // Error (exit 4) when loss or gradients are not finite
  double evaluate(int64_t windows = 0);   // mean nats per token over the first windows of the validation text; 0: all
  int64_t done() const { return done_; }  // steps
  const Recipe& recipe() const { return recipe_; }

  // Frees what only further steps need (programs, moments); afterwards only model() and rounded() may be called.
  void finish();
  Model model() const;    // with the weights as they are now, f32
  Model rounded() const;  // with the recipe's formats, as evaluate() sees it; model() without [[quantize]]

  std::filesystem::path save(const std::filesystem::path& out) const;  // a checkpoint folder
  void restore(const std::filesystem::path& checkpoint);               // Error when it belongs to another model

  std::string explain() const;  // kernels of a step with their last times

 private:
  using Tensors = std::map<std::string, run::DeviceTensorRef>;
  run::DeviceTensorRef tensor(const std::string& name, const graph::Type& type);
  void bind_all(run::Program& program);
  bool is_trained(const std::string& name) const;
  void set_scalar(const char* name, double value);
  double scalar(run::Program& program, const char* name);
  void put_batch(const std::vector<TokenId>& batch, int64_t rows);

  run::Engine& engine_;
  Model model_;  // without bytes of weights: those are tensors
  Recipe recipe_;
  std::shared_ptr<const Dataset> data_;
  std::vector<graph::FormatAssignment> assignments_;
  std::vector<LearnedField> learned_;
  std::vector<Parameter> trained_;  // weights and learned fields
  Tensors tensors_;                 // inputs by name: parameters, moments, data
  std::shared_ptr<run::Program> step_, accumulate_, apply_, evaluate_;
  int64_t done_ = 0;
};

}  // namespace lumen::model
