// What a model loses when one of its weights is held in a format, predicted for many formats at once without running
// the model with any of them: 1/2 sum over rows n of E[g_n^2] e_n E[x x^T] e_n^T, where x is what the weight reads, g
// what the text's loss gains by what the weight's product gives, and e the errors that the strategy leaves. That is
// the Fisher matrix in its two factors (K-FAC), of which the one of outputs is taken as diagonal; the unit is nats per
// token, of the loss and, near the minimum, of the KL divergence. Proved by
// tests/model/compress/score/weight_scores_test.cpp.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "model/calibrate/layer_run.h"
#include "model/compress/strategy/strategy.h"
#include "run/engine/engine.h"

namespace lumen::model {

struct CandidateScore {
  FormatRef format;
  int64_t bytes = 0;
  double score = 0;  // nats per token
  double error = 0;  // |e| / |w|
};

struct WeightScore {
  std::string name;  // of the parameter
  int64_t weights = 0;
  double products = 0;  // how many of its matrices a token is multiplied with: 1; of a stack those that are picked
  std::vector<CandidateScore> candidates;  // those whose blocks divide its rows
};

struct ScoreOptions {
  LayerRunOptions run;
  std::vector<FormatRef> candidates;
  const Strategy* strategy = nullptr;  // that rounds, and takes all candidates; null: each format's own search
  StrategyOptions numbers;
  int64_t rows = 512;            // of a weight that errors are measured on, evenly spread; formats with tiles: all
  std::filesystem::path folder;  // of values between layers; empty: memory
};

// The same without scores: names and sizes.
std::vector<WeightScore> unscored_weights(const Model& model, const std::vector<std::string>& names,
                                          const std::vector<FormatRef>& candidates);
// Scores of the parameters `names`, in that order. `progress`: what is done, and the share of all. Error (exit 1) when
// no candidate fits a weight.
std::vector<WeightScore> score_weights(run::Engine& engine, const Model& model, const std::vector<std::string>& names,
                                       std::span<const TokenId> text, const ScoreOptions& options,
                                       const std::function<void(const std::string&, double)>& progress = {});

}  // namespace lumen::model
