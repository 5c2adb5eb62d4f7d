// What a text costs a model whose parameters are still moving, and the gradient of that with respect to all of them,
// layer by layer: one layer's numbers and gradients are held at a time. The cost of a token is its loss, or how far the
// model's prediction is from that of another model, its teacher. Same text, same bits. Proved by
// tests/model/calibrate/text_loss_test.cpp.
#pragma once

#include <filesystem>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "model/calibrate/layer_run.h"

namespace lumen::model {

class TextLoss {
 public:
  // A parameter's numbers as f32; they are asked for whenever its layer is run.
  using Numbers = std::function<std::vector<float>(const std::string&)>;
  // Takes the gradient of a parameter; of those that several layers read in parts.
  using Gradient = std::function<void(const std::string&, std::vector<float>)>;

  // `teacher`: null: losses of tokens; else KL(teacher || model), nats. Models outlive this, but their weights are not
  // looked at, only the teacher's. `folder`: of values between layers; empty: memory. Error when the model predicts no
  // tokens, or the teacher's are others.
  TextLoss(run::Engine& engine, const Model& model, std::span<const TokenId> text, const LayerRunOptions& options,
           const std::filesystem::path& folder = {}, const Model* teacher = nullptr);

  int64_t windows() const { return windows_; }
  // The mean over all tokens of the text.
  double value(const Numbers& numbers);
  // The mean over the tokens of these windows, and its gradients.
  double gradients(std::span<const int64_t> windows, const Numbers& numbers, const Gradient& gradient);

 private:
  void take(std::span<const int64_t> windows);
  double tokens() const;
  // Runs all parts of a model; results of the last one.
  std::vector<float> forward(LayerRun& run, CarriedValues& values, const Numbers& numbers) const;
  // The sum over all tokens that were taken; `seeds`: what it gains by each result of the model.
  double cost(const Numbers& numbers, std::vector<float>* seeds);
  double divergence(std::span<const float> logits, std::span<const float> teacher, std::vector<float>* seeds) const;

  run::Engine& engine_;
  const int64_t length_, at_once_, vocabulary_;
  const Model* const teacher_;
  std::vector<TokenId> text_;
  LayerRun run_;
  std::optional<LayerRun> taught_;
  CarriedValues values_, true_, slopes_;
  const int64_t windows_;
};

}  // namespace lumen::model
