// Where the answers of a conversation lie in what a template prints of it. Used by chat_mask.cpp, which says how.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "model/data/rows/shapes.h"
#include "model/templates/chat.h"

namespace lumen::model::data {

// A text to learn from: what is printed of messages, and the answers in it that are learned.
struct AnswerText {
  templates::ChatText text;
  std::vector<templates::ChatText::Part> parts;
  size_t count = 0;  // messages that are in it
};

class AnswerFinder {
 public:
  // Throws ShapeFault where the template refuses the conversation.
  AnswerFinder(const templates::ChatRenderer& renderer, const nlohmann::ordered_json& messages,
               const nlohmann::ordered_json& more);

  const templates::ChatText& whole() const { return full_; }
  // The answers (indices of messages, ascending) within the whole text. Throws ShapeFault.
  AnswerText in_whole(const std::vector<size_t>& answers) const;
  // The same, but an answer that is printed differently once others follow it gets a text of its own. `cut` gets what
  // no text says.
  std::vector<AnswerText> in_turns(const std::vector<size_t>& answers, std::string* cut) const;

  // Whether the part ends with a token with which answers end.
  bool is_ended(const templates::ChatText& text, const templates::ChatText::Part& part) const;

 private:
  using Part = templates::ChatText::Part;

  std::vector<Part> from_blocks(const templates::ChatText& text, const std::vector<size_t>& answers) const;
  std::optional<templates::ChatText> print(const templates::MarkedChat& chat, size_t count, bool open) const;
  std::optional<templates::ChatText> printed(size_t count, bool open) const { return print(chat_, count, open); }
  Part own_part(size_t k, const templates::ChatText& text, size_t count) const;
  size_t begin_of(size_t k, const templates::ChatText& text, size_t count) const;
  size_t opened(size_t k, const templates::ChatText& text, size_t count,
                const std::optional<templates::ChatText>& open) const;
  Part last_answer(size_t k, const templates::ChatText& text) const;
  void require_last(size_t k, const templates::ChatText& text, size_t end) const;
  void require_calls(size_t k, const templates::ChatText& text) const;
  Part answer_within(size_t k) const;
  Part up_to_end(const templates::ChatText& text, Part part) const;
  bool ends_turn(text::TokenId id) const;
  void take_end(const templates::ChatText& text, size_t from, Part* part) const;
  bool loses_thoughts(size_t k, const templates::ChatText& text) const;
  std::optional<AnswerText> with_thoughts(size_t k, const templates::ChatText& text) const;

  const templates::ChatRenderer& renderer_;
  templates::MarkedChat chat_;
  templates::ChatText full_;
};

}  // namespace lumen::model::data
