// Choosing the next token from logits. The order of filters is the one users know: repeat penalty, top-k, top-p, min-p,
// temperature. Random numbers are a function of (seed, how many were drawn), so a seed names one text. Proved by
// tests/model/infer_test.cpp.
#pragma once

#include <cstdint>
#include <deque>
#include <span>
#include <vector>

#include "model/text/tokenizer.h"

namespace lumen::model {

struct SamplerOptions {
  double temperature = 0.8;   // 0: greedy
  int64_t top_k = 40;         // 0: all
  double top_p = 0.95;        // 1: all
  double min_p = 0.05;        // of the best token's probability; 0: all
  double repeat_penalty = 1;  // 1: none
  int64_t repeat_last = 64;   // tokens it looks back
  uint32_t seed = 0;
};

class Sampler {
 public:
  explicit Sampler(SamplerOptions options);  // Error (exit 2) on values out of range
  TokenId pick(std::span<const float> logits);
  void accept(TokenId token);  // prompt tokens count for the repeat penalty, too

 private:
  SamplerOptions options_;
  std::deque<TokenId> recent_;
  uint64_t drawn_ = 0;
};

}  // namespace lumen::model
