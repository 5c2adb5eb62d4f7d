// Weights of tokens, exp((logit - best) / temperature), for a whole vocabulary: in f32, vectorized, with the same bits
// on every machine. Proved by tests/model/infer/sample/ranking_test.cpp.
#pragma once

#include <span>

#include "model/infer/sample/token_set.h"

namespace lumen::model {

struct Weighing {
  float best = 0;   // larger logits count as this one, so that no weight exceeds 1
  float scale = 1;  // 1 / temperature
  float least = 0;  // smaller logits have weight 0
};

// out[i] = exp((logits[i] - best) * scale), with a relative error of 1e-5; 0 if that is below exp(-87), if the logit is
// below `least`, and for hidden tokens. Logits are finite or -infinity. sums[w]: the sum of the weights of word w of a
// TokenSet. Returns the sum of all, accumulated in f64.
double weights_of(std::span<const float> logits, const Weighing& how, const TokenSet& hidden, std::span<float> out,
                  std::span<float> sums);

}  // namespace lumen::model
