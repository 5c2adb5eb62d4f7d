// The loss of a text under changing parameters, and its gradient with respect to all of them, layer by layer: one
// layer's numbers and gradients are in memory at a time. The loss of a token is cross entropy, or the KL divergence
// from the prediction of another model, its teacher. Same text, same bits. Proved by
// tests/model/calibrate/text_loss_test.cpp.
#pragma once

#include <filesystem>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "model/calibrate/layer_run.h"

namespace lumen::model::calibrate {

class TextLoss {
 public:
  // A parameter's numbers as f32; called whenever its layer is run.
  using Numbers = std::function<std::vector<float>(const std::string&)>;
  // Receives the gradient of a parameter; for one that several layers read, in several terms.
  using Gradient = std::function<void(const std::string&, std::vector<float>)>;

  // `teacher`: null: losses of tokens; else KL(teacher || model), nats. Models outlive this; weights are read from the
  // teacher only. `folder`: of values between layers; empty: memory. Error when the model predicts no tokens, or the
  // teacher has another vocabulary.
  TextLoss(run::Engine& engine, const arch::Model& model, std::span<const text::TokenId> text,
           const LayerRunOptions& options, const std::filesystem::path& folder = {},
           const arch::Model* teacher = nullptr);

  int64_t windows() const { return windows_; }
  // The mean over all tokens of the text.
  double value(const Numbers& numbers);
  // The mean over the tokens of these windows, and its gradients.
  double gradients(std::span<const int64_t> windows, const Numbers& numbers, const Gradient& gradient);

 private:
  void take(std::span<const int64_t> windows);
  double tokens() const;
  // Runs all parts of a model; returns results of the last one.
  std::vector<float> forward(LayerRun& run, CarriedValues& values, const Numbers& numbers) const;
  // The sum over all tokens of the current windows; `seeds`: receives its gradient for the model's results.
  double cost(const Numbers& numbers, std::vector<float>* seeds);
  double divergence(std::span<const float> logits, std::span<const float> teacher, std::vector<float>* seeds) const;

  run::Engine& engine_;
  const int64_t length_, at_once_, vocabulary_;
  const arch::Model* const teacher_;
  std::vector<text::TokenId> text_;
  LayerRun run_;
  std::optional<LayerRun> taught_;
  CarriedValues values_, true_, slopes_;
  const int64_t windows_;
};

}  // namespace lumen::model::calibrate
