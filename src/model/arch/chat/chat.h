// Models that answer in chats: the template belongs to the model, and so do the tokens with which its answers end.
// Proved by tests/model/arch/chat/chat_test.cpp.
//
// May include: base, base/file, base/structured, model/arch, model/arch/checkpoint, model/template,
// model/text/tokenizer/file.
#pragma once

#include <filesystem>
#include <string>

#include "model/arch/model.h"
#include "model/template/chat.h"

namespace lumen::model {

// The model answers by this template from here on: its tokenizer carries it and ends texts where answers end, and so do
// the files and the metadata that are written with it. The model has a tokenizer.
void take_chat(Model& model, const ChosenTemplate& chosen);

// The chat template that an adapter was trained with: what its folder or file carries; empty where it carries none.
std::string adapter_chat_template(const std::filesystem::path& adapter);

}  // namespace lumen::model
