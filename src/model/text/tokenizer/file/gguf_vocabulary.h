// Vocabularies in GGUF metadata: padding up to the rows of a model's embedding, and the end-of-generation tokens. Other
// programs load a file only when it has as many tokens as the embedding has rows; unused ids get the name "[PAD{id}]"
// and the type "unused". Proved by tests/model/text/gguf_vocabulary_test.cpp.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "model/file/gguf.h"
#include "model/text/tokenizer/tokenizer.h"

namespace lumen::model::text {

// tokenizer.ggml.pre for pre-tokenizers without a name in other programs: tokenizer.huggingface.json describes them.
inline constexpr const char* kUnnamedSplit = "custom";

// Whether other programs know the file's pre-tokenizer.
bool is_known_split(const file::GgufMetadata& metadata);
// Whether an entry of a file's token list is padding.
bool is_padding(std::string_view token, TokenKind kind);
// Names unused ids without a string, distinct from every other token.
void name_padding(std::vector<std::string>& tokens, const std::vector<int32_t>& kinds);
// Pads the lists of tokens, types and scores to `size`; longer lists stay.
void pad_vocabulary(file::GgufMetadata& metadata, int64_t size);

// Writes the end-of-generation ids: `named` (from the model's config, most important first) and those of the tokenizer
// that other programs do not detect. Existing keys stay.
void ends_to_gguf(const Tokenizer& tokenizer, std::span<const TokenId> named, file::GgufMetadata& metadata);
// The ids of a file's keys, in the order in which they were given; Error when one is not below `count`.
std::vector<TokenId> ends_of_gguf(const file::GgufMetadata& metadata, int64_t count);

}  // namespace lumen::model::text
