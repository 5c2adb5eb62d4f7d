// Scores of formats by several criteria (after QuantX, arXiv 2505.07531):
//
//   c = (0.9 E_out / max E_out + 0.1 E_att / max E_att) (1 + 0.5 max(0, E_tail / E_w - 2))
//
// where E_out is the error of the layer's output with this one weight rounded, E_att the KL divergence of its attention
// probabilities, E_w the weight's own error, E_tail that of its largest numbers, and maxima are over the weight's
// candidates. Scores are c times a factor per weight that makes their geometric mean equal to that of the predicted
// losses (weight_scores.h): they are nats. Criteria are compared as ratios because they have no common unit; scaling by
// the predicted loss of the weight's smallest format alone was measured to choose worse
// (docs/measurements/compression.md).
// Proved by tests/model/compress/criteria/criteria_scores_test.cpp.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <vector>

#include "model/compress/score/weight_scores.h"

namespace lumen::model::compress {

inline constexpr double kAttentionCounts = 0.1, kTailCounts = 0.5;
inline constexpr double kMostAsymmetry = 0.25;  // above it, formats without an offset are excluded
inline constexpr double kMostTail = 4;          // times E_w, for formats whose values come from a table

struct CriteriaOptions {
  calibrate::LayerRunOptions run;
  int64_t windows = 4;           // of the text, for running layers
  std::filesystem::path folder;  // of values between layers; empty: memory
};

// Scores, by these criteria, of the candidates in `by_loss`. Candidates that do not suit the weight's distribution are
// removed, unless all would be. `told`: receives a line for each weight with removed candidates.
std::vector<WeightScore> score_by_criteria(run::Engine& engine, const arch::Model& model,
                                           std::vector<WeightScore> by_loss, std::span<const text::TokenId> text,
                                           const CriteriaOptions& options, std::vector<std::string>* told,
                                           const std::function<void(const std::string&, double)>& progress = {});

}  // namespace lumen::model::compress
