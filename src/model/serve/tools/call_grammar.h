// The grammar of answers with tool calls: every call is of an offered function, with arguments that match its schema.
// If calls are optional, text without the start of a call may come before or instead of them. Proved by
// tests/model/serve/tools_test.cpp.
#pragma once

#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "model/infer/schema/schema.h"
#include "model/serve/tools/call_form.h"

namespace lumen::model::serve {

struct OfferedTool {
  std::string name;
  nlohmann::ordered_json parameters;  // JSON schema of an object
  bool is_strict = false;             // its schema must be enforced whole
};

// The functions that may be called, and the format of calls.
struct CallPlan {
  CallForm form;
  std::vector<OfferedTool> tools;
  bool is_needed = false;   // the answer consists of calls only
  bool is_one = false;      // at most one call
  bool reads_bare = false;  // CallForm::bare_open, of functions that are not strict: no grammar binds such a call
};

// Returns GBNF. `otherwise`: the schema of an answer without calls; nullopt: any text. `relaxed` gets for each function
// the places of its schema that the grammar does not enforce. Error if a schema is malformed or too large.
std::string call_grammar(const CallPlan& plan, const std::optional<infer::SchemaRules>& otherwise = {},
                         const infer::SchemaOptions& options = {},
                         std::map<std::string, std::vector<std::string>>* relaxed = nullptr);

// Rules named PREFIX0, .. for text without `mark`, followed by `mark` and `then` (an expression), or with `may_end`
// optionally by nothing. The first rule is PREFIX0.
std::string rules_of_text_before(const std::string& prefix, const std::string& mark, const std::string& then,
                                 bool may_end);

}  // namespace lumen::model::serve
