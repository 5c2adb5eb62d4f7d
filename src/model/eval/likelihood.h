// How likely a model finds a continuation behind a prompt. Prefixes that sequences share are computed once. Proved by
// tests/model/eval/eval_test.cpp.
#pragma once

#include <string>
#include <vector>

#include "model/infer/session/session.h"

namespace lumen::model {

// Two token sequences, one behind the other; the second is not empty.
struct TokenPair {
  std::vector<TokenId> before, behind;
};

// The tokens of a prompt and of what follows it: both are cut into words together, so that words which reach across
// are those of the whole text. Spaces at the prompt's end belong to what follows. Error when nothing follows.
TokenPair token_pair(const Tokenizer& tokenizer, std::string prompt, std::string continuation);

class Likelihood {
 public:
  // A sequence has at most as many tokens as the session's context; longer ones lose their beginning.
  Likelihood(const LoadedModel& loaded, const SessionOptions& options);
  // The logarithm of the probability of `behind` after `before`, in nats.
  double of(const TokenPair& pair);
  int64_t cut() const { return cut_; }            // sequences that lost their beginning
  int64_t computed() const { return computed_; }  // tokens that went through the model

 private:
  Session session_;
  // The tokens behind which the row stands that was asked for last.
  std::vector<TokenId> row_tokens_;
  std::vector<float> row_;
  int64_t cut_ = 0, computed_ = 0;
};

}  // namespace lumen::model
