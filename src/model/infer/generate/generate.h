// Generation, also speculative decoding: tokens are drawn until an end token, a stop string, the end of a grammar, or a
// limit. When the context is full it can be shifted: the oldest tokens after the first `keep` are dropped, and the
// others are recomputed at their new positions. Proved by tests/model/infer/generate_test.cpp.
//
// May include: base, base/threads, graph/ir, model/arch, model/infer/grammar, model/infer/prefixes, model/infer/sample,
// model/infer/session, model/text/stages, model/text/tokenizer.
// Offers: constraint_cache.h, generate_many.h, many_draft.h, sequence_batch.h.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "model/infer/generate/answer.h"
#include "model/infer/generate/speculative.h"
#include "model/infer/session/session.h"

namespace lumen::model::infer {

class Generator {
 public:
  // With a draft (speculative decoding), its proposed tokens are computed in one step and accepted as long as the
  // sampler draws the same tokens from the model's logits. Ids outside of the tokenizer's vocabulary are never drawn.
  Generator(const LoadedModel& loaded, SessionOptions session, SamplerOptions sampling, GenerateOptions options,
            std::unique_ptr<Draft> draft = nullptr);

  struct Result {
    EndReason reason = EndReason::limit;
    std::string text;                   // the output shown
    int64_t read = 0, made = 0;         // prompt tokens computed, and tokens drawn
    int64_t drafted = 0, accepted = 0;  // tokens proposed by the draft, and those accepted
    double read_seconds = 0, made_seconds = 0;
  };
  // Computes the prompt and generates. With `whole` the prompt replaces the whole sequence, whose common prefix is not
  // recomputed; otherwise it is appended to the sequence. `show` gets each piece of the output; generation is
  // interrupted when `go_on` returns false.
  Result answer(std::span<const text::TokenId> prompt, bool whole, const std::function<void(std::string_view)>& show,
                const std::function<bool()>& go_on);
  const std::vector<text::TokenId>& tokens() const { return tokens_; }  // computed and generated so far
  Session& session() { return session_; }

 private:
  LogitRow feed(std::span<const text::TokenId> tokens);
  LogitRow advance(text::TokenId id, int64_t wanted, Result* counts);
  void accept(std::span<const text::TokenId> prompt);
  void settle();
  void make_room(size_t wanted);

  const text::Tokenizer& tokenizer_;
  Session session_;
  GenerateOptions options_;
  Sampler sampler_;
  std::unique_ptr<Draft> draft_;
  std::optional<Constraint> constraint_;
  std::optional<GrammarMatcher> matcher_;
  std::vector<text::TokenId> tokens_;  // the sequence; session_ has computed a prefix of it, or with a draft:
  std::vector<text::TokenId> ahead_;   // the sequence followed by draft tokens, or empty
  size_t ahead_from_ = 0;              // rows_ has the logits of its tokens from this index on
  std::vector<float> rows_;
};

}  // namespace lumen::model::infer
