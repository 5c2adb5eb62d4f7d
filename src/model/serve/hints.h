// Fields of requests with which other servers and APIs ask for something that Lumen has under another name: reasoning,
// grammars, ends. Proved by tests/model/serve/hints_test.cpp.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "model/serve/fields.h"

namespace lumen::model::serve {

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

// The request with `guided_json`, `guided_choice`, `guided_grammar`, `guided_regex`, `structured_outputs` and
// `json_schema` as `response_format` or `grammar`; nullopt if it has none of them.
std::optional<nlohmann::ordered_json> without_guides(const nlohmann::ordered_json& body);

// Members of chats that the other APIs do not define, and take under the same name.
inline constexpr const char* kExtensions[] = {"seed",
                                              "min_p",
                                              "typical_p",
                                              "top_n_sigma",
                                              "xtc_probability",
                                              "xtc_threshold",
                                              "mirostat",
                                              "mirostat_tau",
                                              "mirostat_eta",
                                              "presence_penalty",
                                              "frequency_penalty",
                                              "repetition_penalty",
                                              "repeat_penalty",
                                              "repeat_last_n",
                                              "dry_multiplier",
                                              "dry_base",
                                              "dry_allowed_length",
                                              "dry_penalty_last_n",
                                              "dry_sequence_breakers",
                                              "logit_bias",
                                              "min_tokens",
                                              "ignore_eos",
                                              "stop_token_ids",
                                              "chat_template_kwargs",
                                              "grammar",
                                              "guided_json",
                                              "guided_choice",
                                              "guided_grammar",
                                              "guided_regex",
                                              "structured_outputs"};

// DRY: `dry_multiplier`, `dry_base`, `dry_allowed_length`, `dry_penalty_last_n`, `dry_sequence_breakers`.
void read_dry(Fields& fields, const ServedModel& model, infer::SamplerOptions* sampling);

// Token ids that end the output (`stop_token_ids`).
std::vector<text::TokenId> read_end_ids(Fields& fields, const ServedModel& model);

// A seed of 64 bits as one of 32 bits; those below 2^32 stay. nullopt: none, or -1.
std::optional<uint32_t> read_seed(Fields& fields);

// The end of the prompt: `continue_final_message`, `add_generation_prompt`.
templates::PromptEnd read_prompt_end(Fields& fields);

// GBNF in which reasoning between its marks may come before an answer of `grammar`. `is_open`: the prompt has opened
// it, so that the answer comes after the closing mark only.
std::string grammar_after_reasoning(const std::string& grammar, const ReasoningMarks& marks, bool is_open);

}  // namespace lumen::model::serve
