// Vocabularies of characters with control tokens before them. Proved by tests/model/text/tokenizer_test.cpp.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "model/text/tokenizer/tokenizer.h"

namespace lumen::model {

// As Tokenizer::characters(), behind the control tokens given, whose names are no part of the text. `end_of_text`: one
// of them, EOS (and BOS); empty: none.
Tokenizer character_tokenizer(std::string_view text, const std::vector<std::string>& specials,
                              const std::string& end_of_text);

}  // namespace lumen::model
