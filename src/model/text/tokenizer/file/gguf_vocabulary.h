// Vocabularies in GGUF metadata: padding up to the length of a model's embedding, and the tokens that end a text.
// Other programs load a file only when it names as many tokens as the embedding has rows; ids without a token are
// called "[PAD{id}]" there and are of the kind "unused". Proved by tests/model/text/gguf_vocabulary_test.cpp.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "model/file/gguf.h"
#include "model/text/tokenizer/tokenizer.h"

namespace lumen::model {

// tokenizer.ggml.pre of files whose split into words no program but this one knows: tokenizer.huggingface.json has it.
inline constexpr const char* kUnnamedSplit = "custom";

// Whether other programs know how a file's tokenizer cuts text into words.
bool is_known_split(const GgufMetadata& metadata);
// Whether an entry of a file's list of tokens only fills a gap.
bool is_padding(std::string_view token, TokenKind kind);
// Names for unused ids without a text, each unlike every other token.
void name_padding(std::vector<std::string>& tokens, const std::vector<int32_t>& kinds);
// Lengthens the lists of tokens, kinds and scores to `size`; lists that are as long or longer stay.
void pad_vocabulary(GgufMetadata& metadata, int64_t size);

// Writes which tokens end a text: `named` (by the model's config, the first of them most important) and those of the
// tokenizer that other programs do not find by themselves. Keys that are there stay.
void ends_to_gguf(const Tokenizer& tokenizer, std::span<const TokenId> named, GgufMetadata& metadata);
// The ids that the keys of a file name, in the order they were named in; Error when one is not below `count`.
std::vector<TokenId> ends_of_gguf(const GgufMetadata& metadata, int64_t count);

}  // namespace lumen::model
