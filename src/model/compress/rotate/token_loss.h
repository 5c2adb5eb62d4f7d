// What rotations cost by the model's own measure: the mean loss of a text's tokens under rounded weights, or how far
// what the model then says is from what it says unrounded (KL). The gradient goes straight through the rounding; layer
// by layer (text_loss.h), beside the rounded weights as they are stored. Proved by
// tests/model/compress/rotate/token_loss_test.cpp.
#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "model/calibrate/text_loss.h"
#include "model/compress/recover/learning.h"
#include "model/compress/rotate/learn_rotations.h"

namespace lumen::model {

struct TokenLossOptions {
  LayerRunOptions run;
  bool own = false;  // the model's own predictions are the measure
  // What the layers' matrices read passes through this format while the rounded model runs, fields fitted; null:
  // floats.
  FormatRef activations;
  int64_t step_windows = 8;
  uint64_t seed = 0;
  std::filesystem::path folder;  // of values between layers; empty: memory
};

class TokenLoss : public RotationObjective {
 public:
  // `formats`: by parameter; others stay as they are. All outlive this, but text and options.
  TokenLoss(run::Engine& engine, RotatedWeights& weights, const std::map<std::string, FormatRef>& formats,
            std::span<const TokenId> text, const TokenLossOptions& options);

  double value() override;
  double add_gradients() override;

 private:
  // Rounds all weights as the rotations leave them.
  void round();
  std::vector<float> numbers(const std::string& name);

  run::Engine& engine_;
  RotatedWeights& weights_;
  const std::map<std::string, FormatRef>& formats_;
  const Model rounds_;  // what is run, without its weights
  TextLoss loss_;
  WindowDraw draw_;
  std::map<std::string, std::vector<uint8_t>> rounded_;
};

}  // namespace lumen::model
