// Scores of formats by several criteria (after QuantX, arXiv 2505.07531):
//
//   c = (0.9 E_out / max E_out + 0.1 E_att / max E_att) (1 + 0.5 max(0, E_tail / E_w - 2))
//
// where E_out is what the layer hands on with this one weight rounded, E_att the KL divergence of what its attentions
// look at, E_w the weight's own error, E_tail that of its largest numbers, and maxima are over the weight's candidates.
// Scores are c times one number for each weight, by which their geometric mean is that of the predicted losses
// (weight_scores.h): they are nats. Criteria are compared as ratios because they have no unit in common; scaled by the
// predicted loss of a weight's smallest format alone they were measured to choose worse (docs/guide/compression.md).
// Proved by tests/model/compress/criteria/criteria_scores_test.cpp.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <vector>

#include "model/compress/score/weight_scores.h"

namespace lumen::model {

inline constexpr double kAttentionCounts = 0.1, kTailCounts = 0.5;
inline constexpr double kMostAsymmetry = 0.25;  // of a weight that formats without an offset are candidates for
inline constexpr double kMostTail = 4;          // times E_w, of formats whose values come from a table

struct CriteriaOptions {
  LayerRunOptions run;
  int64_t windows = 4;           // of the text that layers are run over
  std::filesystem::path folder;  // of values between layers; empty: memory
};

// The scores, by these criteria, of the candidates in `by_loss`; those that a weight's shape speaks against are gone,
// unless all would be. `told`: a line for each weight of which some are.
std::vector<WeightScore> score_by_criteria(run::Engine& engine, const Model& model, std::vector<WeightScore> by_loss,
                                           std::span<const TokenId> text, const CriteriaOptions& options,
                                           std::vector<std::string>* told,
                                           const std::function<void(const std::string&, double)>& progress = {});

}  // namespace lumen::model
