// Vocabularies as files of ranks: on each line a token's bytes in base64 and its rank, which is its id. Merging always
// takes the pair that makes the token of the lowest rank, and words that are tokens are taken whole. Such a file does
// not say how text is cut, nor which control tokens there are: a table does (models/pretokenizers.toml), and
// tokenizer_config.json. Hostile files: lengths, ranks and tokens are checked before anything is built. Proved by
// tests/model/text/ranks_test.cpp and tests/model/text/tokenizer_reference.py.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>

namespace lumen::model {

// By its first line.
bool is_ranks(std::string_view text);
// The same vocabulary as a tokenizer.json. `path` is the file's: its name and a config.json beside it tell how texts
// are cut; Error when they do not. `config`: the text of tokenizer_config.json, or empty.
std::string ranks_as_json(std::string_view text, const std::filesystem::path& path, std::string_view config);

}  // namespace lumen::model
