// tiktoken vocabularies: each line has a token's bytes in base64 and its rank, which is its id. Merging always takes
// the pair that forms the token of the lowest rank, and words in the vocabulary become one token. Such a file lacks the
// split pattern and the control tokens: they come from a table (models/pretokenizers.toml), and from
// tokenizer_config.json. Hostile files: lengths, ranks and tokens are checked before anything is built. Proved by
// tests/model/text/ranks_test.cpp and tests/model/text/tokenizer_reference.py.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>

namespace lumen::model::text {

// Decided by the first line.
bool is_ranks(std::string_view text);
// The same vocabulary as a tokenizer.json. `path`: the file's name and a config.json next to it select the split
// pattern; Error when neither is known. `config`: the contents of tokenizer_config.json, or empty.
std::string ranks_as_json(std::string_view text, const std::filesystem::path& path, std::string_view config);

}  // namespace lumen::model::text
