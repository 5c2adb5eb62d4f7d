// Speculative decoding: a cheap draft proposes tokens, the model computes them in one step, and accepts those that it
// would have drawn itself. Every accepted token was drawn from the model's own logits, so the distribution of the
// output is that of decoding without a draft, for any proposal. Proved by tests/model/infer/speculative_test.cpp.
#pragma once

#include <functional>

#include "model/infer/session/session.h"

namespace lumen::model::infer {

class Draft {
 public:
  virtual ~Draft() = default;
  // Proposes up to `most` tokens that may follow `tokens`.
  virtual std::vector<text::TokenId> propose(std::span<const text::TokenId> tokens, int64_t most) = 0;
};

// Prompt lookup: proposes the tokens that followed an earlier occurrence of the last tokens; the longest match of
// `longest` down to `shortest` tokens is used.
class LookUpDraft : public Draft {
 public:
  explicit LookUpDraft(int64_t longest = 4, int64_t shortest = 1) : longest_(longest), shortest_(shortest) {}
  std::vector<text::TokenId> propose(std::span<const text::TokenId> tokens, int64_t most) override;

 private:
  int64_t longest_, shortest_;
};

// Proposes the most likely tokens of a smaller model with the same vocabulary.
class ModelDraft : public Draft {
 public:
  // `forbidden`: ids that the target model never draws.
  ModelDraft(const LoadedModel& small, SessionOptions options, std::vector<text::TokenId> forbidden = {})
      : session_(small, std::move(options)), forbidden_(std::move(forbidden)) {}
  std::vector<text::TokenId> propose(std::span<const text::TokenId> tokens, int64_t most) override;

 private:
  Session session_;
  std::vector<text::TokenId> forbidden_;
  std::vector<float> logits_;
};

// Picks a token from the logits of the sequence so far. The caller appends each picked token before the next call.
using Pick = std::function<text::TokenId(std::span<const float> logits)>;

// One round. All of `tokens` but the last are in the session. Returns the tokens drawn, at least one; the last of them
// is not computed yet. `most`: of draft tokens.
std::vector<text::TokenId> speculate(Session& session, Draft& draft, const Pick& pick,
                                     std::span<const text::TokenId> tokens, int64_t most);

}  // namespace lumen::model::infer
