// The likelihood of a continuation after a prompt. Common prefixes of sequences are computed once. Proved by
// tests/model/eval/eval_test.cpp.
#pragma once

#include <string>
#include <vector>

#include "model/infer/session/session.h"

namespace lumen::model::eval {

// A prompt and its continuation as tokens; the continuation is not empty.
struct TokenPair {
  std::vector<text::TokenId> before, behind;
};

// Tokenizes a prompt and its continuation as one text, so that tokens across the boundary are those of the whole text.
// Trailing spaces of the prompt belong to the continuation. Error if the continuation has no tokens.
TokenPair token_pair(const text::Tokenizer& tokenizer, std::string prompt, std::string continuation);

class Likelihood {
 public:
  // Sequences longer than the session's context are truncated at their beginning.
  Likelihood(const infer::LoadedModel& loaded, const infer::SessionOptions& options);
  // The log probability of `behind` after `before`, in nats.
  double of(const TokenPair& pair);
  int64_t cut() const { return cut_; }            // number of truncated sequences
  int64_t computed() const { return computed_; }  // tokens computed by the model

 private:
  infer::Session session_;
  // The tokens whose logits are in row_.
  std::vector<text::TokenId> row_tokens_;
  std::vector<float> row_;
  int64_t cut_ = 0, computed_ = 0;
};

}  // namespace lumen::model::eval
