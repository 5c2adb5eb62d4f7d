#include "model/eval/likelihood.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"

namespace lumen::model::eval {
namespace {

double log_probability(std::span<const float> logits, text::TokenId id, const char* what) {
  const float top = *std::max_element(logits.begin(), logits.end());
  double sum = 0;
  for (const float v : logits) sum += std::exp(static_cast<double>(v) - top);
  const double out = static_cast<double>(logits[id]) - top - std::log(sum);
  if (!std::isfinite(out))
    throw Error(Exit::numeric, fmt::format("the model's logits {} are not finite", what),
                "look for the damaged weight with `lumen inspect`, or try --exact");
  return out;
}

}  // namespace

TokenPair token_pair(const text::Tokenizer& tokenizer, std::string prompt, std::string continuation) {
  const size_t end = prompt.find_last_not_of(" \t\n\r\f\v") + 1;
  continuation = prompt.substr(end) + continuation;
  prompt.resize(end);
  text::EncodeOptions options;
  options.add_special = true;
  const auto encode = [&](const std::string& text) {
    std::vector<text::TokenId> ids = tokenizer.encode(text, options);
    if (tokenizer.adds_eos() && !ids.empty() && tokenizer.eos() && ids.back() == *tokenizer.eos()) ids.pop_back();
    return ids;
  };
  TokenPair pair;
  const std::vector<text::TokenId> whole = encode(prompt + continuation);
  pair.before = encode(prompt);
  if (pair.before.empty()) {  // the first token needs a context
    const auto first = tokenizer.bos() ? tokenizer.bos() : tokenizer.eos();
    if (!first) throw user_error("an empty prompt needs a tokenizer with a token for the beginning or end of a text");
    pair.before = {*first};
    pair.behind = whole;
  } else {
    pair.behind.assign(whole.begin() + std::min(pair.before.size(), whole.size()), whole.end());
  }
  if (pair.behind.empty())
    throw user_error("the continuation has no tokens, so it has no likelihood: '{}'", continuation);
  return pair;
}

Likelihood::Likelihood(const infer::LoadedModel& loaded, const infer::SessionOptions& options)
    : session_(loaded, options) {}

double Likelihood::of(const TokenPair& pair) {
  std::vector<text::TokenId> before = pair.before;
  // The last token's probability is needed, but the token is not computed.
  const size_t room = session_.context();
  if (pair.behind.size() > room)
    throw user_error("a choice of {} tokens is longer than the context of {}", pair.behind.size(), room);
  if (const size_t all = before.size() + pair.behind.size() - 1; all > room) {
    before.erase(before.begin(), before.begin() + std::min(all - room, before.size() - 1));
    ++cut_;
  }
  if (before != row_tokens_) {
    const auto [mine, theirs] =
        std::mismatch(session_.tokens().begin(), session_.tokens().end(), before.begin(), before.end());
    computed_ += std::ssize(before) - std::min<int64_t>(mine - session_.tokens().begin(), before.size() - 1);
    const auto row = session_.become(before);
    row_.assign(row.begin(), row.end());
    row_tokens_ = before;
  }
  double sum = log_probability(row_, pair.behind.front(), "after a prompt");
  if (pair.behind.size() == 1) return sum;
  session_.rewind(before.size());
  const std::span<const text::TokenId> read(pair.behind.data(), pair.behind.size() - 1);
  const std::span<const float> rows = session_.feed_all(read);
  computed_ += read.size();
  const size_t vocabulary = session_.vocabulary();
  for (size_t i = 0; i < read.size(); ++i)
    sum += log_probability(rows.subspan(i * vocabulary, vocabulary), pair.behind[i + 1], "within a choice");
  return sum;
}

}  // namespace lumen::model::eval
