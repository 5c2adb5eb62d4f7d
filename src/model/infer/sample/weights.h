// Passes over the logits of a whole vocabulary, vectorized, in groups of Race::kGroup tokens. Largest logits of groups
// tell which groups need not be looked at again; sums of weights exp((logit - best) / temperature) are in f32, with a
// proved error and the same bits on every machine. Proved by tests/model/infer/sample/weights_test.cpp.
#pragma once

#include <limits>
#include <span>

#include "model/infer/sample/token_set.h"

namespace lumen::model {

constexpr float kMostLogit = std::numeric_limits<float>::infinity();

int64_t groups_of(size_t vocabulary);

// out[g] = the largest logit of group g among tokens that are not hidden; -infinity if there is none.
void peaks_of(std::span<const float> logits, const TokenSet& hidden, std::span<float> out);

// The logits from `low` to `high`.
struct LogitRange {
  float low = -kMostLogit, high = kMostLogit;
  bool has(double logit) const { return logit >= low && logit <= high; }
};

struct Weighing {
  float best = 0;             // larger logits count as this one, so that no weight exceeds 1
  float scale = 1;            // 1 / temperature
  float least = -kMostLogit;  // smaller logits have weight 0
  LogitRange near = {}, far = {};
  bool moments = false;
};

// Sums of weights; each weight and each sum has a relative error of at most kWeightError. Logits are finite or
// -infinity; weights below exp(-kDepth) count as 0, so that `all` may lack that much for each token.
struct WeightSums {
  double all = 0, near = 0, far = 0;  // of all logits, and of those in the ranges
  double moment = 0;                  // if asked for: of weight * (logit - best), within kWeightError of its magnitude
};
constexpr double kWeightError = 2e-5;
constexpr double kDepth = 25;

// `peaks`: upper bounds of the logits of each group; groups from `begin` to `end` (excluded) are looked at.
WeightSums sum_weights(std::span<const float> logits, std::span<const float> peaks, const Weighing& how,
                       const TokenSet& hidden, size_t begin, size_t end);

// Moments of the finite logits that are at least `least` and not hidden, relative to `from`, in f64.
struct LogitMoments {
  double count = 0, sum = 0, squares = 0;
};
LogitMoments moments_of(std::span<const float> logits, const TokenSet& hidden, float least, double from);

// The logits of a group, those of hidden tokens and of tokens beyond the vocabulary replaced by -infinity: in place if
// there are none of these, otherwise in `room` (Race::kGroup numbers).
const float* logits_of_group(std::span<const float> logits, const TokenSet& hidden, size_t group, float* room);

}  // namespace lumen::model
