// Fields of requests with which other servers and APIs ask for something that Lumen has under another name: reasoning,
// grammars, ends. Proved by tests/model/serve/hints_test.cpp.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "model/serve/fields.h"

namespace lumen::model {

// What the client wants of reasoning. Of fields that contradict each other the most direct one decides:
// `enable_thinking`, then `thinking`, `reasoning`, `reasoning_effort`.
struct ReasoningWish {
  std::optional<bool> is_on;
  std::string effort;  // "low", "medium" or "high"; empty: not given
};
ReasoningWish read_reasoning(Fields& fields, FieldNotes* notes);

// Sets the template's variables for a wish, where `more` does not have them. A wish that the template cannot grant is
// noted.
void grant(const ReasoningWish& wish, const ReasoningForm& form, nlohmann::ordered_json* more, FieldNotes* notes);

// The request with `guided_json`, `guided_choice`, `guided_grammar`, `structured_outputs` and `json_schema` as
// `response_format` or `grammar`; nullopt if it has none of them. Refusal for regular expressions, which grammars
// replace.
std::optional<nlohmann::ordered_json> without_guides(const nlohmann::ordered_json& body);

// Token ids that end the output (`stop_token_ids`).
std::vector<TokenId> read_end_ids(Fields& fields, const ServedModel& model);

// A seed of 64 bits as one of 32 bits; those below 2^32 stay. nullopt: none, or -1.
std::optional<uint32_t> read_seed(Fields& fields);

// The end of the prompt: `continue_final_message`, `add_generation_prompt`.
PromptEnd read_prompt_end(Fields& fields);

// GBNF in which reasoning between its marks may come before an answer of `grammar`. `is_open`: the prompt has opened
// it, so that the answer comes after the closing mark only.
std::string grammar_after_reasoning(const std::string& grammar, const ReasoningMarks& marks, bool is_open);

}  // namespace lumen::model
