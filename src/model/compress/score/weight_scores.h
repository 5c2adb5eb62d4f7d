// Predicted loss of holding one weight in a format, for many formats at once without running the model in them: 1/2 sum
// over rows n of E[g_n^2] e_n E[x x^T] e_n^T, where x is the weight's input, g the gradient of the text's loss for the
// output of the weight's product, and e the errors that the strategy leaves. That is the Fisher matrix in two Kronecker
// factors (K-FAC), the output factor taken as diagonal; the unit is nats per token, of the loss and, near the minimum,
// of the KL divergence. Proved by tests/model/compress/score/weight_scores_test.cpp.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "model/calibrate/layer_run.h"
#include "model/compress/strategy/strategy.h"
#include "run/engine/engine.h"

namespace lumen::model::compress {

struct CandidateScore {
  FormatRef format;
  int64_t bytes = 0;
  double score = 0;  // nats per token
  double error = 0;  // |e| / |w|
};

struct WeightScore {
  std::string name;  // of the parameter
  int64_t weights = 0;
  double products = 0;                     // matrices multiplied per token: 1; of a stack of experts, those selected
  std::vector<CandidateScore> candidates;  // those whose blocks divide its rows
};

struct ScoreOptions {
  calibrate::LayerRunOptions run;
  std::vector<FormatRef> candidates;
  const Strategy* strategy = nullptr;  // rounds all candidates; null: each format's own search
  StrategyOptions numbers;
  int64_t rows = 512;            // of a weight, sampled evenly to measure errors; all rows for formats with tiles
  std::filesystem::path folder;  // of values between layers; empty: memory
};

// The same without scores: names and sizes.
std::vector<WeightScore> unscored_weights(const arch::Model& model, const std::vector<std::string>& names,
                                          const std::vector<FormatRef>& candidates);
// Scores of the parameters `names`, in that order. `progress`: current work, and fraction done. Error (exit 1) when no
// candidate fits a weight.
std::vector<WeightScore> score_weights(run::Engine& engine, const arch::Model& model,
                                       const std::vector<std::string>& names, std::span<const text::TokenId> text,
                                       const ScoreOptions& options,
                                       const std::function<void(const std::string&, double)>& progress = {});

}  // namespace lumen::model::compress
