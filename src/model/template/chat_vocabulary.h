// The control tokens of a vocabulary that is made for a chat template. Proved by
// tests/model/template/answer_form_test.cpp.
#pragma once

#include <string>
#include <vector>

#include "model/template/chat.h"

namespace lumen::model {

struct ChatVocabulary {
  std::vector<std::string> controls;  // names, each a token of its own; `end` among them
  std::string end;                    // ends texts and answers; empty: there are no chats
};

// The names that the template writes around messages (<|user|>, [INST], </s>, ..), and the token with which it ends
// answers; one of our own where it writes none for that.
ChatVocabulary chat_vocabulary(const ChosenTemplate& chosen);

}  // namespace lumen::model
