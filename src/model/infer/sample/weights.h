// Weights of tokens, exp((logit - best) / temperature), of a whole vocabulary at once: in f32, with vector
// instructions, and with the same bits on every machine. Proved by tests/model/infer/ranking_test.cpp.
#pragma once

#include <span>

#include "model/infer/sample/token_set.h"

namespace lumen::model {

struct Weighing {
  float best = 0;   // no weight is above 1: larger logits count as this one
  float scale = 1;  // 1 / temperature
  float least = 0;  // smaller logits weigh 0
};

// out[i] = exp((logits[i] - best) * scale), within 1e-5 of it relative to it; 0 where that is below exp(-87), where the
// logit is below `least`, and of hidden tokens. Logits are numbers or -infinity. sums[w]: of the weights of word w of a
// TokenSet. Returns the sum of all, added up in f64.
double weights_of(std::span<const float> logits, const Weighing& how, const TokenSet& hidden, std::span<float> out,
                  std::span<float> sums);

}  // namespace lumen::model
