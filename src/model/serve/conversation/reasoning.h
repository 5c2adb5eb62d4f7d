// Reasoning of a model: the marks that its chat template writes around it, the variable that switches it, and the
// reader that splits it from the answer while the output grows. Proved by
// tests/model/serve/conversation/reasoning_test.cpp.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "model/templates/chat.h"

namespace lumen::model::serve {

// OPEN reasoning CLOSE answer, both without white space around them (<think> and </think>, for example). In templates
// with channels an answer has a mark of its own: OPEN reasoning CLOSE ANSWER answer, or ANSWER answer, and further
// reasoning may come before it.
struct ReasoningMarks {
  std::string open, close;
  std::string answer = {};  // empty: no channels
};

struct ReasoningForm {
  std::optional<ReasoningMarks> marks;  // nullopt: the template knows no reasoning
  std::vector<text::TokenId> controls;  // the marks that are control tokens, which outputs show only on request
  std::string variable;       // of the template: true and false switch reasoning (enable_thinking); empty: none does
  bool reads_effort = false;  // the template reads `reasoning_effort`
};

// The marks are those around known reasoning in a rendered answer. If the template renders no reasoning (that of former
// answers, for example), they are the tag that opens an answer, or tags that it removes from an answer's text;
// otherwise <think> and </think>, if both are tokens of the vocabulary.
ReasoningForm learn_reasoning(const templates::ChatRenderer& renderer);

// Whether a rendered prompt ends with the mark that opens reasoning.
bool opens_reasoning(const ReasoningMarks& marks, std::string_view prompt);
// Whether it ends with the mark that closes reasoning, as templates write it where reasoning is off.
bool closes_reasoning(const ReasoningMarks& marks, std::string_view prompt);

// Splits a growing output. Marks may be cut anywhere. White space next to the marks belongs to neither part.
class ReasoningReader {
 public:
  // `is_open`: the prompt has opened the reasoning. `before`: text that ends reasoning without being a mark of it, such
  // as the start of a tool call; it belongs to the answer.
  ReasoningReader(ReasoningMarks marks, bool is_open, std::string before = {});

  struct Piece {
    std::string reasoning, text;
  };
  Piece push(std::string_view text);
  Piece finish();  // returns the text held back

 private:
  enum class State { start, reasoning, after, text };
  bool go_on(Piece* out);
  void put_reasoning(size_t size, Piece* out);

  ReasoningMarks marks_;
  std::string before_, held_;
  State state_;
  bool any_ = false;  // reasoning has begun
};

}  // namespace lumen::model::serve
