// What a model's files say besides its weights and its numbers: chat template, special tokens, defaults of generation.
// Small files of Hugging Face folders and metadata of GGUF say the same in two ways. Proved by
// tests/model/arch/carry_test.cpp.
#pragma once

#include <filesystem>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "model/file/gguf.h"
#include "model/text/tokenizer/tokenizer.h"

namespace lumen::model {

// tokenizer.ggml.model of files that have none; other programs refuse files without the key.
inline const std::string kNoTokenizer = "no_vocab";
// Files without the key, and with any word other programs have for none.
inline bool has_no_tokenizer(const GgufMetadata& metadata) {
  const std::string kind = metadata.text("tokenizer.ggml.model", kNoTokenizer);
  return kind == kNoTokenizer || kind == "none";
}

using SmallFiles = std::map<std::string, std::string>;  // by name

// config.json, generation_config.json, tokenizer files, chat templates: those the folder has.
SmallFiles small_files(const std::filesystem::path& folder);

// The tokens at which texts end, as generation_config.json and config.json name them, in that order. Ids that are not
// below `vocabulary` are never drawn and left out.
std::vector<TokenId> named_ends(const SmallFiles& files, int64_t vocabulary);

// How the file that says it in a folder calls the pooling of a model's vectors, as the number of {a}.pooling_type of
// GGUF: 1 the mean, 2 the first token, 3 the last. Nothing where it chooses none; Error where it chooses what neither
// form has a number for. `text`: the file's.
inline constexpr const char* kPoolingFile = "1_Pooling/config.json";
std::optional<uint32_t> pooling_number(const std::string& text, const std::string& where);

// Adds what the files say and the metadata does not; ids below `vocabulary` only. Without ends of texts, which
// ends_to_gguf() writes.
void carry_to_gguf(const SmallFiles& files, int64_t vocabulary, GgufMetadata& metadata);

// The files of a folder: those there were, and where there were none what the metadata says. `ends`: at which tokens
// texts end. Without config.json and tokenizer.json, which have writers of their own.
SmallFiles carry_to_hf(const SmallFiles& files, const GgufMetadata& metadata, std::span<const TokenId> ends);

}  // namespace lumen::model
