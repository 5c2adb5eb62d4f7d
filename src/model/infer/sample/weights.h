// Passes over the logits of a whole vocabulary, vectorized, in groups of Race::kGroup tokens. Largest logits of groups
// tell which groups need not be looked at again; sums of weights exp((logit - best) / temperature) are in f32, with a
// proved error and the same bits on every machine. Proved by tests/model/infer/sample/weights_test.cpp.
#pragma once

#include <cstdint>
#include <limits>
#include <span>
#include <vector>

#include "model/infer/sample/logit_row.h"
#include "model/infer/sample/token_set.h"

namespace lumen::model::infer {

constexpr float kMostLogit = std::numeric_limits<float>::infinity();

// The largest f32 not above the bound, and the smallest one not below it.
float at_most(double bound);
float at_least(double bound);

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
// -infinity. In a group that has heavier tokens, weights below exp(-kDepth) count as that, those of hidden tokens, too;
// other groups count as nothing. So sums may be off by that much for each token.
struct WeightSums {
  double all = 0, near = 0, far = 0;  // of all logits, and of those in the ranges
  double moment = 0;  // if asked for: of weight * (logit - best), within kWeightError of its magnitude, and kDepth /
                      // scale times as much for each token that is so light
};
constexpr double kWeightError = 2e-5;
constexpr double kDepth = 25;

// Logits below this one have weight 0 at any rate.
float least_that_counts(float best, float scale);

// `peaks`: upper bounds of the logits of each group; groups from `begin` to `end` (excluded) are looked at.
WeightSums sum_weights(std::span<const float> logits, std::span<const float> peaks, const Weighing& how,
                       const TokenSet& hidden, size_t begin, size_t end);

// The same in f64: each weight is within 1e-15 of exp, relative to it. `least` is a bound as above; weights below
// exp(-700) count as 0.
struct ExactWeighing {
  double best = 0, scale = 1;
  float least = -kMostLogit;
  LogitRange near = {};
};
struct ExactSums {
  double all = 0, near = 0, moment = 0;
};
ExactSums exact_sums(std::span<const float> logits, std::span<const float> peaks, const TokenSet& hidden,
                     const ExactWeighing& how);

// Appends the tokens in `outer` that are not in `inner` to `out`, in any order, and returns the number of those in
// `inner`, a part of `outer`.
size_t tokens_between(std::span<const float> logits, std::span<const float> peaks, const TokenSet& hidden,
                      LogitRange inner, LogitRange outer, std::vector<Candidate>& out);

// Counts the logits that are below `in.high` and at least `in.low` by steps of 1 / `each` down from `top`, the lowest
// ones in the last step but one; the last one is of other logits. Their number is a multiple of 64.
void count_steps(std::span<const float> logits, LogitRange in, float top, float each, std::span<uint32_t> counts);
// The least of the logits that are at least `in.low`, or `in.high` if that is less.
float least_above(std::span<const float> logits, LogitRange in);

// From lower bounds of the groups' random numbers to upper bounds of their ratios: what a group with as many tokens
// as its best one has, whose logit counts as at most `ceiling`. -1: the peak is below `how.least`.
void race_bounds(std::span<const float> peaks, const Weighing& how, float ceiling, std::span<float> numbers);

// Moments of the finite logits that are at least `least` and not hidden, relative to `from`, in f64.
struct LogitMoments {
  double count = 0, sum = 0, squares = 0;
};
LogitMoments moments_of(std::span<const float> logits, const TokenSet& hidden, float least, double from);

// The logits of a group, those of hidden tokens and of tokens beyond the vocabulary replaced by -infinity: in place if
// there are none of these, otherwise in `room` (Race::kGroup numbers).
const float* logits_of_group(std::span<const float> logits, const TokenSet& hidden, size_t group, float* room);

}  // namespace lumen::model::infer
