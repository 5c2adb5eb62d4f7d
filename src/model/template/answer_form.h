// What a template does with answers, learned from the template itself: it is given messages whose text is known, and
// what stands around them is the form. So no template is known by name. Proved by
// tests/model/template/answer_form_test.cpp.
#pragma once

#include <optional>
#include <span>

#include "model/template/chat.h"

namespace lumen::model {

// The first style in which the template prints a call whole: plain objects and strings where it takes them.
CallStyle learn_call_style(const ChatRenderer& renderer);

AnswerForm learn_answer_form(const ChatRenderer& renderer);

// The control token with which an answer ends, which lies in a part of what is printed: of those that stand at the end
// of the part, white space aside, the first that is one of `ends` (what stands behind it the template puts behind all
// messages), else the last.
struct LastControl {
  size_t end = 0;
  TokenId id = -1;
};
std::optional<LastControl> last_control(const ChatRenderer& renderer, const ChatText& text, ChatText::Part part,
                                        std::span<const TokenId> ends);

// The control tokens of a vocabulary that is made for a chat template.
struct ChatVocabulary {
  std::vector<std::string> controls;  // names, each a token of its own; `end` among them
  std::string end;                    // ends documents and answers; empty: there are no chats
};

// The names that the template writes around messages (<|user|>, [INST], </s>, ..), and the token with which it ends
// answers; one of our own where it writes none for that.
ChatVocabulary chat_vocabulary(const ChosenTemplate& chosen);

}  // namespace lumen::model
