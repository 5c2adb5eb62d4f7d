// One output that is being generated, token by token: what is drawn from logits, what of it is shown, and where it
// ends. Knows nothing of sessions: one sequence alone (generate.h) and many at once (generate_many.h) are generated the
// same way. Proved by tests/model/infer/generate_test.cpp.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "model/infer/sample/grammar.h"
#include "model/infer/sample/sampler.h"
#include "model/text/stages/decoder.h"
#include "model/text/tokenizer/tokenizer.h"

namespace lumen::model {

// Strings at which a streamed output ends: what may become one of them is held back.
class StopStrings {
 public:
  explicit StopStrings(std::vector<std::string> strings);
  // What may be shown now. Once a stop string is complete: what stood before it, and stopped() is true.
  std::string push(std::string_view text);
  std::string finish();  // what was held back
  bool stopped() const { return stopped_; }
  const std::string& found() const { return found_; }  // the one that stopped it

 private:
  std::vector<std::string> strings_;
  std::string held_, found_;
  bool stopped_ = false;
};

struct GenerateOptions {
  int64_t predict = -1;  // tokens at most; -1: no limit, -2: until the context is full
  std::vector<std::string> stops = {};
  std::string grammar = {};  // GBNF, or empty
  bool ignore_end = false;   // end tokens are never drawn
  bool shift = false;        // make room when the context is full
  int64_t keep = 0;          // tokens at the beginning that stay then; -1: all of the first prompt
  int64_t draft = 16;        // tokens a draft may propose at once
};

enum class EndReason { end_token, stop_string, grammar, limit, context, interrupted };
std::string_view reason_name(EndReason reason);  // "end", "stop", "grammar", "limit", "context", "interrupted"

// Ids below `vocabulary` that no output can have: a model may have more than its tokenizer (padding, gaps). With
// `ignore_end` the end tokens as well.
std::vector<TokenId> never_drawn(const Tokenizer& tokenizer, int64_t vocabulary, bool ignore_end);

// The strings of a vocabulary's tokens, as grammars need them; made once for all of them.
struct TokenStrings {
  // With `controls` a grammar may ask for control tokens, which are then shown by their names.
  explicit TokenStrings(const Tokenizer& tokenizer, bool controls = false)
      : trie(generation_trie(tokenizer, &strings, controls)) {}
  std::vector<std::string> strings;  // by id
  TokenTrie trie;
};

// A grammar, made once for all outputs that must follow it.
struct Constraint {
  // Error when `text` is no grammar. `all` null: the strings of the tokens are made here.
  Constraint(const Tokenizer& tokenizer, const std::string& text, std::shared_ptr<const TokenStrings> all = nullptr);
  std::shared_ptr<const Grammar> grammar;
  std::shared_ptr<const TokenStrings> tokens;
};

class Answer {
 public:
  using Show = std::function<void(std::string_view)>;
  // `matcher` stands at the beginning of the constraint's grammar; both or neither.
  Answer(const Tokenizer& tokenizer, const GenerateOptions& options, Sampler& sampler, const Constraint* constraint,
         GrammarMatcher* matcher, Show show);

  // Draws the next token, and shows what may be shown. Nothing when the output ends without one more. With a token the
  // output may have ended as well: then nobody asks what follows it.
  std::optional<TokenId> draw(const LogitRow& row);
  // Chooses the token that draw() will take from this row, and changes nothing that outputs share: several outputs may
  // choose at the same time. False when the row must be fetched first.
  bool choose(const LogitRow& row);
  bool ended() const { return reason_.has_value(); }
  void end(EndReason reason);                                      // from outside
  EndReason finish();                                              // shows the rest; why it ended
  const std::string& text() const { return text_; }                // what was shown
  int64_t made() const { return made_; }                           // tokens drawn, one that ended the output included
  std::optional<TokenId> end_token() const { return end_token_; }  // the one that ended it, if one did
  const std::string& stop() const { return stops_.found(); }

 private:
  void put(const std::string& text);
  bool is_at_end() const { return is_at_limit() || (matcher_ && matcher_->must_end()); }
  bool is_at_limit() const { return options_.predict >= 0 && made_ >= options_.predict; }

  const Tokenizer& tokenizer_;
  const GenerateOptions& options_;
  Sampler& sampler_;
  const Constraint* constraint_;
  GrammarMatcher* matcher_;
  Show show_;
  std::vector<TokenId> ends_;
  TokenStream stream_;
  StopStrings stops_;
  std::optional<EndReason> reason_;
  std::optional<TokenId> chosen_;  // for the next draw
  std::optional<TokenId> end_token_;
  std::string text_;
  int64_t made_ = 0;
};

}  // namespace lumen::model
