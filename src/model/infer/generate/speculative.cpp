#include "model/infer/generate/speculative.h"

#include <algorithm>
#include <cmath>

#include "base/check.h"

namespace lumen::model::infer {

std::vector<text::TokenId> LookUpDraft::propose(std::span<const text::TokenId> tokens, int64_t most) {
  const auto size = std::ssize(tokens);
  for (int64_t n = std::min(longest_, size - 1); n >= shortest_ && n > 0; --n) {
    const auto tail = tokens.last(n);
    for (int64_t at = size - n - 1; at >= 0; --at) {  // the latest occurrence first
      if (!std::equal(tail.begin(), tail.end(), tokens.begin() + at)) continue;
      // If the sequence ends before there are enough tokens, it is continued periodically.
      std::vector<text::TokenId> out;
      for (int64_t from = at + n; std::ssize(out) < most; ++from)
        out.push_back(from < size ? tokens[from] : out[from - size]);
      return out;
    }
  }
  return {};
}

std::vector<text::TokenId> ModelDraft::propose(std::span<const text::TokenId> tokens, int64_t most) {
  std::vector<text::TokenId> out;
  most = std::min(most, session_.context() - std::ssize(tokens));
  if (most < 1) return out;
  std::span<const float> logits = session_.become(tokens);
  session_.mark();
  for (;;) {
    if (!forbidden_.empty()) {
      logits_.assign(logits.begin(), logits.end());
      for (const text::TokenId id : forbidden_)
        if (static_cast<size_t>(id) < logits_.size()) logits_[id] = -INFINITY;
      logits = logits_;
    }
    out.push_back(std::max_element(logits.begin(), logits.end()) - logits.begin());
    if (std::ssize(out) >= most) return out;
    logits = session_.feed({&out.back(), 1});
  }
}

std::vector<text::TokenId> speculate(Session& session, Draft& draft, const Pick& pick,
                                     std::span<const text::TokenId> tokens, int64_t most) {
  const auto read = std::ssize(tokens) - 1;
  LUMEN_CHECK(read >= 0 && session.position() == read);
  std::vector<text::TokenId> fed = {tokens.back()};
  const int64_t room = session.context() - session.position() - 1;
  if (room > 0 && most > 0) {
    const std::vector<text::TokenId> proposed = draft.propose(tokens, std::min(most, room));
    fed.insert(fed.end(), proposed.begin(), proposed.end());
  }
  const std::span<const float> logits = session.feed_all(fed);
  const size_t vocab = logits.size() / fed.size();
  std::vector<text::TokenId> kept;
  for (size_t i = 0; i < fed.size(); ++i) {
    kept.push_back(pick(logits.subspan(i * vocab, vocab)));
    if (i + 1 < fed.size() && kept.back() != fed[i + 1]) break;
  }
  // All but the last token are in the session; rejected draft tokens are removed.
  session.rewind(read + kept.size());
  return kept;
}

}  // namespace lumen::model::infer
