// Writing text with a model: tokens are drawn until an end token, a stop text, the end of a grammar, or a limit. When
// the context is full it can be shifted: the oldest tokens behind the first `keep` go, and the rest is read again in
// its new place. Proved by tests/model/generate_test.cpp.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "model/infer/grammar.h"
#include "model/infer/sampler.h"
#include "model/infer/session.h"

namespace lumen::model {

// Texts at which an output ends, in a stream: what may become one is held back.
class StopTexts {
 public:
  explicit StopTexts(std::vector<std::string> texts);
  // What may be shown now. Once a stop text is complete: what stood before it, and stopped() is true.
  std::string push(std::string_view text);
  std::string finish();  // what was held back
  bool stopped() const { return stopped_; }

 private:
  std::vector<std::string> texts_;
  std::string held_;
  bool stopped_ = false;
};

struct GenerateOptions {
  int64_t predict = -1;  // tokens at most; -1: no limit, -2: until the context is full
  std::vector<std::string> stops = {};
  std::string grammar = {};  // GBNF, or empty
  bool ignore_end = false;   // go on behind end tokens
  bool shift = false;        // make room when the context is full
  int64_t keep = 0;          // tokens at the beginning that stay then; -1: all of the first prompt
};

enum class EndReason { end_token, stop_text, grammar, limit, context, interrupted };

class Generator {
 public:
  Generator(const LoadedModel& loaded, SessionOptions session, SamplerOptions sampling, GenerateOptions options);

  struct Result {
    EndReason reason = EndReason::limit;
    std::string text;            // what was shown
    int64_t read = 0, made = 0;  // tokens computed of the prompt, and drawn
    double read_seconds = 0, made_seconds = 0;
  };
  // Reads the prompt; with `whole` it is the whole text so far, of which what is known already is not read again, else
  // it follows what came before. Shows each piece of text as it comes; interrupts when `go_on` is false.
  Result answer(std::span<const TokenId> prompt, bool whole, const std::function<void(std::string_view)>& show,
                const std::function<bool()>& go_on);
  const std::vector<TokenId>& tokens() const { return tokens_; }  // read and written so far
  Session& session() { return session_; }

 private:
  std::span<const float> feed(std::span<const TokenId> tokens);
  void make_room(size_t wanted);

  const Tokenizer& tokenizer_;
  Session session_;
  GenerateOptions options_;
  Sampler sampler_;
  std::optional<GrammarMatcher> matcher_;
  std::vector<std::string> texts_;  // of tokens, for the grammar
  TokenTrie trie_;
  std::vector<TokenId> tokens_;  // the text; the first session_.position() of them were read
};

}  // namespace lumen::model
