// The grammar of answers with calls: every call is of a function that was offered, with arguments that fit its schema;
// where calls are a choice, any text without the beginning of one stands in front or in place of them. Proved by
// tests/model/serve/tools_test.cpp.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "model/infer/sample/json_schema.h"
#include "model/serve/tools/call_form.h"

namespace lumen::model {

struct OfferedTool {
  std::string name;
  nlohmann::ordered_json parameters;  // a schema of an object
};

// What may be called, and how.
struct CallPlan {
  CallForm form;
  std::vector<OfferedTool> tools;
  bool is_needed = false;  // the answer is calls and nothing else
  bool is_one = false;     // at most one call
};

// Text of GBNF. `otherwise`: what the answer is when it is no call; none: any text. Error where a schema cannot be
// bound.
std::string call_grammar(const CallPlan& plan, const std::optional<SchemaRules>& otherwise = {});

// Rules named PREFIX0, .. for strings in which `mark` does not stand; behind them stand `mark` and `then` (an
// expression), or, where `may_end`, nothing. The first rule is PREFIX0.
std::string rules_of_text_before(const std::string& prefix, const std::string& mark, const std::string& then,
                                 bool may_end);

}  // namespace lumen::model
