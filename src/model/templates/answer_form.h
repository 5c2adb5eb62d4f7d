// How a template formats answers, derived from the template itself: it renders messages with known text, and the text
// around them is the format. So no template is recognized by name. Proved by
// tests/model/templates/answer_form_test.cpp.
#pragma once

#include <optional>
#include <span>

#include "model/templates/chat.h"

namespace lumen::model::templates {

// The first style in which the template renders a call completely; plain objects and strings are tried first.
CallStyle learn_call_style(const ChatRenderer& renderer);

AnswerForm learn_answer_form(const ChatRenderer& renderer);

// The control token that ends an answer within a part of rendered text. Of the control tokens at the end of the part,
// ignoring white space, it is the first one in `ends` (the template adds later ones after all messages), otherwise the
// last one.
struct LastControl {
  size_t end = 0;
  text::TokenId id = -1;
};
std::optional<LastControl> last_control(const ChatRenderer& renderer, const ChatText& text, ChatText::Part part,
                                        std::span<const text::TokenId> ends);

// The control tokens of a vocabulary created for a chat template.
struct ChatVocabulary {
  std::vector<std::string> controls;  // names, each a single token; includes `end`
  std::string end;                    // ends documents and answers; empty: no chats
};

// The names that the template writes around messages (<|user|>, [INST], </s>, ..), and the token with which it ends
// answers; if it has none, one of Lumen's own is added.
ChatVocabulary chat_vocabulary(const ChosenTemplate& chosen);

}  // namespace lumen::model::templates
