// The state of one output during generation: the tokens drawn from logits, the text shown so far, and the reason it
// ends. It is independent of sessions, so that single sequences (generate.h) and batches (generate_many.h) are
// generated the same way. Proved by tests/model/infer/generate_test.cpp.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "model/infer/grammar/grammar_states.h"
#include "model/infer/sample/sampler.h"
#include "model/text/stages/decoder.h"
#include "model/text/tokenizer/tokenizer.h"

namespace lumen::model::infer {

// Stop strings of a streamed output; text that may be the beginning of one is held back.
class StopStrings {
 public:
  explicit StopStrings(std::vector<std::string> strings);
  // Returns the text that can be shown now. Once a stop string is complete, this is the text before it, and stopped()
  // is true.
  std::string push(std::string_view text);
  std::string finish();  // returns the text held back
  bool stopped() const { return stopped_; }
  const std::string& found() const { return found_; }  // the stop string that was found

 private:
  std::vector<std::string> strings_;
  std::string held_, found_;
  bool stopped_ = false;
};

struct GenerateOptions {
  int64_t predict = -1;  // most tokens to draw; -1: no limit, -2: until the context is full
  int64_t least = 0;     // so many tokens are drawn before an end token or a stop string may end the output
  std::vector<std::string> stops = {};
  std::string grammar = {};  // GBNF, or empty
  bool ignore_end = false;   // end tokens (EOS, EOT) are never drawn
  bool shift = false;        // context shift when the context is full
  int64_t keep = 0;          // tokens at the beginning that a context shift keeps; -1: all of the first prompt
  int64_t draft = 16;        // most draft tokens per step
  std::vector<text::TokenId> ends =
      {};  // further tokens that end the output, with `ignore_end` too; they are not shown
  std::vector<text::TokenId> shown = {};  // control tokens whose names are shown
};

enum class EndReason { end_token, stop_string, grammar, limit, context, interrupted };
std::string_view reason_name(EndReason reason);  // "end", "stop", "grammar", "limit", "context", "interrupted"

// Ids below `vocabulary` that are never drawn: a model's vocabulary may be larger than its tokenizer's (padding, gaps).
// With `ignore_end` end tokens are included.
std::vector<text::TokenId> never_drawn(const text::Tokenizer& tokenizer, int64_t vocabulary, bool ignore_end);

// The strings of a vocabulary's tokens, for grammars; created once and shared.
struct TokenStrings {
  // With `controls` a grammar may use control tokens, which are then shown by their names.
  explicit TokenStrings(const text::Tokenizer& tokenizer, bool controls = false)
      : trie(generation_trie(tokenizer, &strings, controls)) {}
  std::vector<std::string> strings;  // by id
  text::TokenTrie trie;
};

// A grammar for constrained decoding, parsed once and shared by all outputs that use it.
struct Constraint {
  // Error if `text` is not a valid grammar. `all` null: the token strings are created here.
  Constraint(const text::Tokenizer& tokenizer, const std::string& text,
             std::shared_ptr<const TokenStrings> all = nullptr);
  std::shared_ptr<const Grammar> grammar;
  std::shared_ptr<GrammarStates> states;  // of all outputs that use it
  std::shared_ptr<const TokenStrings> tokens;
};

class Answer {
 public:
  using Show = std::function<void(std::string_view)>;
  // `matcher` is at the start of the constraint's grammar; both or neither are null.
  Answer(const text::Tokenizer& tokenizer, const GenerateOptions& options, Sampler& sampler,
         const Constraint* constraint, GrammarMatcher* matcher, Show show);

  // Draws the next token, or takes the one that was chosen (choose.h), and shows the text that is certain. nullopt if
  // the output ends without another token. The output may also end with the returned token; its successor's logits are
  // not needed then.
  std::optional<text::TokenId> draw(const LogitRow& row);
  // Chooses the token that draw() will take from this row, and changes nothing that outputs share: several outputs may
  // choose at the same time. False when the row must be fetched first.
  bool choose(const LogitRow& row);
  // The same from a row that stays on the device: false when it must learn its need() first. Undecided if the row must
  // be fetched.
  bool choose(DistantRow& row);
  // What another look at a reduced row is asked for, and the tokens that choose() may take if a grammar restricts them.
  Asked asked(const LogitRow& row) const { return sampler_.asked(row.narrowed()->vocabulary); }
  std::optional<TokenSet> allowed() const;
  bool ended() const { return reason_.has_value(); }
  void end(EndReason reason);                                            // ends it from outside
  EndReason finish();                                                    // shows the rest; returns the reason
  const std::string& text() const { return text_; }                      // the text shown so far
  int64_t made() const { return made_; }                                 // tokens drawn, including a final end token
  std::optional<text::TokenId> end_token() const { return end_token_; }  // the end token that ended it, if any
  const std::string& stop() const { return stops_.found(); }

 private:
  void put(const std::string& text);
  bool is_at_end() const { return is_at_limit() || (matcher_ && matcher_->must_end()); }
  bool pick(const LogitRow& row);
  bool is_at_limit() const { return options_.predict >= 0 && made_ >= options_.predict; }

  const text::Tokenizer& tokenizer_;
  const GenerateOptions& options_;
  Sampler& sampler_;
  const Constraint* constraint_;
  GrammarMatcher* matcher_;
  Show show_;
  std::vector<text::TokenId> ends_;
  std::vector<text::TokenId> late_;  // tokens that are barred until `least` tokens are drawn
  text::TokenStream stream_;
  StopStrings stops_;
  std::optional<EndReason> reason_;
  std::optional<text::TokenId> chosen_;  // for the next draw
  std::optional<text::TokenId> end_token_;
  std::string text_;
  int64_t made_ = 0;
};

}  // namespace lumen::model::infer
