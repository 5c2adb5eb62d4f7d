// The cost of rotations by the model's own loss: the mean loss of a text's tokens under rounded weights, or the KL
// divergence of its predictions from the unrounded model's. Gradients are straight-through; layer by layer
// (text_loss.h), with the rounded weights in their stored form. Proved by
#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "model/calibrate/text_loss.h"
#include "model/compress/reconstruction/learning.h"
#include "model/compress/rotate/learn_rotations.h"

namespace lumen::model::compress {

struct TokenLossOptions {
  calibrate::LayerRunOptions run;
  bool own = false;  // KL divergence from the model's own predictions
  // Inputs of the layers' matrices pass through this format in the rounded model, with fitted fields; null: floats.
  FormatRef activations;
  int64_t step_windows = 8;
  uint64_t seed = 0;
  std::filesystem::path folder;  // of values between layers; empty: memory
};

class TokenLoss : public RotationObjective {
 public:
  // `formats`: by parameter; others are unchanged. All arguments except text and options outlive this.
  TokenLoss(run::Engine& engine, RotatedWeights& weights, const std::map<std::string, FormatRef>& formats,
            std::span<const text::TokenId> text, const TokenLossOptions& options);

  double value() override;
  double add_gradients() override;

 private:
  // Rounds all rotated weights.
  void round();
  std::vector<float> numbers(const std::string& name);

  run::Engine& engine_;
  RotatedWeights& weights_;
  const std::map<std::string, FormatRef>& formats_;
  const arch::Model rounds_;  // the model that is run, without its weights
  calibrate::TextLoss loss_;
  WindowDraw draw_;
  std::map<std::string, std::vector<uint8_t>> rounded_;
};

}  // namespace lumen::model::compress
