// A model's data besides weights and config: chat template, special tokens, default sampling parameters. Converts
// between small files of Hugging Face folders and GGUF metadata. Proved by tests/model/arch/carry_test.cpp.
#pragma once

#include <filesystem>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "model/file/gguf.h"
#include "model/text/tokenizer/tokenizer.h"

namespace lumen::model::arch {

// tokenizer.ggml.model of files without a tokenizer; other programs refuse files without the key.
inline const std::string kNoTokenizer = "no_vocab";
// True for files without the key, and for the values that other programs write.
inline bool has_no_tokenizer(const file::GgufMetadata& metadata) {
  const std::string kind = metadata.text("tokenizer.ggml.model", kNoTokenizer);
  return kind == kNoTokenizer || kind == "none";
}

using SmallFiles = std::map<std::string, std::string>;  // by name

// config.json, generation_config.json, tokenizer files, chat templates: those that exist in the folder.
SmallFiles small_files(const std::filesystem::path& folder);

// The EOS ids of generation_config.json and config.json, in that order. Ids that are not below `vocabulary` can never
// be sampled and are left out.
std::vector<text::TokenId> named_ends(const SmallFiles& files, int64_t vocabulary);

// The pooling of an embedding model in a folder's pooling config: "mean", "cls", "lasttoken" or another mode's name.
// nullopt where none is chosen; Error for several at once. `text`: contents of the file.
inline constexpr const char* kPoolingFile = "1_Pooling/config.json";
std::optional<std::string> pooling_mode(const std::string& text, const std::string& where);

// Adds data of the files that the metadata lacks; only ids below `vocabulary`. Without EOS ids, which ends_to_gguf()
// writes.
void carry_to_gguf(const SmallFiles& files, int64_t vocabulary, file::GgufMetadata& metadata);

// The small files of a folder: the existing ones, and missing ones from the metadata. `ends`: EOS ids. Without
// config.json and tokenizer.json, which have their own writers.
SmallFiles carry_to_hf(const SmallFiles& files, const file::GgufMetadata& metadata,
                       std::span<const text::TokenId> ends);

}  // namespace lumen::model::arch
