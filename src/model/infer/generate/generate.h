// Generation with a model: tokens are drawn until an end token, a stop string, the end of a grammar, or a limit. When
// the context is full it can be shifted: the oldest tokens behind the first `keep` go, and the rest is read again in
// its new place. Proved by tests/model/infer/generate_test.cpp.
//
// May include: base, graph/ir, model/arch, model/infer/prefixes, model/infer/sample, model/infer/session,
// model/text/stages, model/text/tokenizer.
// Offers: generate_many.h, many_draft.h, sequence_batch.h.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "model/infer/generate/answer.h"
#include "model/infer/generate/speculative.h"
#include "model/infer/session/session.h"

namespace lumen::model {

class Generator {
 public:
  // With a draft, the tokens that it proposes are computed together and kept where the model would have drawn them.
  // Tokens that no output can have are never drawn.
  Generator(const LoadedModel& loaded, SessionOptions session, SamplerOptions sampling, GenerateOptions options,
            std::unique_ptr<Draft> draft = nullptr);

  struct Result {
    EndReason reason = EndReason::limit;
    std::string text;                   // what was shown
    int64_t read = 0, made = 0;         // tokens computed of the prompt, and drawn
    int64_t drafted = 0, accepted = 0;  // tokens the draft proposed, and those of them that were kept
    double read_seconds = 0, made_seconds = 0;
  };
  // Reads the prompt; with `whole` it is the whole sequence so far, whose known prefix is not computed again, else it
  // follows what came before. Shows each piece of the output as it comes; interrupts when `go_on` is false.
  Result answer(std::span<const TokenId> prompt, bool whole, const std::function<void(std::string_view)>& show,
                const std::function<bool()>& go_on);
  const std::vector<TokenId>& tokens() const { return tokens_; }  // read and generated so far
  Session& session() { return session_; }

 private:
  LogitRow feed(std::span<const TokenId> tokens);
  LogitRow advance(TokenId id, int64_t wanted, Result* counts);
  void settle();
  void make_room(size_t wanted);

  const Tokenizer& tokenizer_;
  Session session_;
  GenerateOptions options_;
  Sampler sampler_;
  std::unique_ptr<Draft> draft_;
  std::optional<Constraint> constraint_;
  std::optional<GrammarMatcher> matcher_;
  std::vector<TokenId> tokens_;  // the sequence; the first session_.position() of them were read, and perhaps more:
  std::vector<TokenId> ahead_;   // the sequence as the draft has it, or nothing
  size_t ahead_from_ = 0;        // logits behind its tokens from here are in rows_
  std::vector<float> rows_;
};

}  // namespace lumen::model
