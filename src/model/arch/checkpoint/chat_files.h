// Chat templates among the small files of folders, and in the metadata of GGUF files. Proved by
// tests/model/arch/model_chat_test.cpp.
#pragma once

#include <map>
#include <span>
#include <string>

#include "model/arch/checkpoint/carry.h"

namespace lumen::model {

inline constexpr const char* kTemplateKey = "tokenizer.chat_template";  // in GGUF metadata
inline constexpr const char* kTemplateFile = "chat_template.jinja";

// The chat templates that files of a folder name, by name; "" is the usual one.
std::map<std::string, std::string> templates_of(const SmallFiles& files);

// Puts the chat template in place of the one that the files and the metadata of a model name, and adds `ends`, tokens
// with which its answers end, to those that the files name. What says nothing of a tokenizer stays as it is.
void replace_chat_template(const std::string& text, std::span<const TokenId> ends, int64_t vocabulary,
                           SmallFiles& files, GgufMetadata& metadata);

}  // namespace lumen::model
