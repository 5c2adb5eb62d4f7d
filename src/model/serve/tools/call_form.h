// The format in which a chat template writes tool calls, derived from the template itself: it renders messages with
// calls whose names and arguments are known, and the text around them is the format. So no template is recognized by
// name. Proved by tests/model/serve/tools_test.cpp.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "model/templates/chat.h"

namespace lumen::model::serve {

// OPEN [ID AFTER_ID] NAME MIDDLE ARGUMENTS CLOSE, with NEXT instead of OPEN between two calls, and END after the last
// one. Arguments are a JSON object, or pairs: BEFORE_KEY KEY AFTER_KEY VALUE AFTER_VALUE, in which strings are not
// quoted.
struct CallForm {
  std::string open, next, after_id, middle, close, end;
  bool has_id = false;
  bool has_many = false;  // several calls in one answer
  struct Pairs {
    std::string before_key, after_key, after_value;
  };
  std::optional<Pairs> pairs;
  // The JSON object of a call begins with this part of OPEN, after a mark; empty where OPEN is not so. Models that
  // write calls badly leave out the mark: the object alone, at the beginning of an answer, is a call as well.
  std::string bare_open;
  std::vector<std::string> controls;  // names of control tokens, if the format contains some
};

// nullopt if the template does not list functions in the prompt, or cannot write calls.
std::optional<CallForm> learn_call_form(const templates::ChatRenderer& renderer);

}  // namespace lumen::model::serve
