// Speculative decoding: a cheap draft proposes tokens, the model reads them all at once, and those are kept that it
// would have drawn itself. Every kept token was picked from the model's own logits, so the output is distributed as
// without a draft, whatever the draft proposes. Proved by tests/model/infer/speculative_test.cpp.
#pragma once

#include <functional>

#include "model/infer/session/session.h"

namespace lumen::model {

class Draft {
 public:
  virtual ~Draft() = default;
  // Up to `most` tokens that may follow `tokens`.
  virtual std::vector<TokenId> propose(std::span<const TokenId> tokens, int64_t most) = 0;
};

// What followed the last few tokens where they occurred before: the longest run of `longest` to `shortest` tokens
// counts.
class LookUpDraft : public Draft {
 public:
  explicit LookUpDraft(int64_t longest = 4, int64_t shortest = 1) : longest_(longest), shortest_(shortest) {}
  std::vector<TokenId> propose(std::span<const TokenId> tokens, int64_t most) override;

 private:
  int64_t longest_, shortest_;
};

// What a smaller model with the same vocabulary finds likeliest.
class ModelDraft : public Draft {
 public:
  // `forbidden`: ids that the model it drafts for never draws.
  ModelDraft(const LoadedModel& small, SessionOptions options, std::vector<TokenId> forbidden = {})
      : session_(small, std::move(options)), forbidden_(std::move(forbidden)) {}
  std::vector<TokenId> propose(std::span<const TokenId> tokens, int64_t most) override;

 private:
  Session session_;
  std::vector<TokenId> forbidden_;
  std::vector<float> logits_;
};

// Picks a token from the logits behind the tokens so far; told about each token that is kept before it is asked again.
using Pick = std::function<TokenId(std::span<const float> logits)>;

// One round. `tokens` ends with a token the session has not read; everything before is in it. Returns the tokens
// drawn, at least one; the last of them is not read yet. `most`: of the draft.
std::vector<TokenId> speculate(Session& session, Draft& draft, const Pick& pick, std::span<const TokenId> tokens,
                               int64_t most);

}  // namespace lumen::model
