// How a chat template writes calls of functions, learned from the template itself: it is given messages with calls
// whose names and arguments are known, and what stands around them is the form. So no template is known by name. Proved
// by tests/model/serve/tools_test.cpp.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "model/template/chat.h"

namespace lumen::model {

// OPEN [ID AFTER_ID] NAME MIDDLE ARGUMENTS CLOSE, between two calls NEXT in place of OPEN, and END behind the last one.
// Arguments are an object of JSON, or pairs: BEFORE_KEY KEY AFTER_KEY VALUE AFTER_VALUE, in which strings stand as they
// are.
struct CallForm {
  std::string open, next, after_id, middle, close, end;
  bool has_id = false;
  bool has_many = false;  // calls in one answer
  struct Pairs {
    std::string before_key, after_key, after_value;
  };
  std::optional<Pairs> pairs;
  std::vector<std::string> controls;  // names of control tokens, where the form is written with some
};

// Nothing where the template does not show functions to the model, or cannot write calls.
std::optional<CallForm> learn_call_form(const ChatRenderer& renderer);

}  // namespace lumen::model
