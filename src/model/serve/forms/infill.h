// Prompts for the middle of a file, between its beginning and its end (fill-in-the-middle), and for other files of a
// project next to it. Proved by tests/model/serve/forms_native_test.cpp.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "model/serve/request.h"

namespace lumen::model::serve {

// Whether the vocabulary has the control tokens for it.
bool has_infill(const ServedModel& model);
// The prompt whose continuation is the middle. `files`: names and contents of other files. Refusal if the model has no
// such tokens.
std::vector<text::TokenId> infill_prompt(const ServedModel& model, const std::string& prefix, const std::string& suffix,
                                         const std::vector<std::pair<std::string, std::string>>& files);

// The tokens of a text. With `is_whole` BOS and EOS are added as the tokenizer says, and names of control tokens in the
// text become those tokens. Refusal that names `field` if a character is not in the vocabulary.
std::vector<text::TokenId> tokens_of(const ServedModel& model, const std::string& text, const std::string& field,
                                     bool is_whole);
// Most tokens that an output may have.
int64_t most_tokens_of(const ServedModel& model);

}  // namespace lumen::model::serve
