// Character-level vocabularies with control tokens. Proved by tests/model/text/tokenizer_test.cpp.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "model/text/tokenizer/tokenizer.h"

namespace lumen::model::text {

// As Tokenizer::characters(), but the given control tokens come first and their names in the text are skipped.
// `end_of_text`: one of them, used as EOS (and BOS); empty: none.
Tokenizer character_tokenizer(std::string_view text, const std::vector<std::string>& specials,
                              const std::string& end_of_text);

}  // namespace lumen::model::text
