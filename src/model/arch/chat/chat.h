// Chat models: the chat template and the end-of-turn tokens belong to the model. Proved by
// tests/model/arch/chat/chat_test.cpp.
//
// May include: base, base/file, base/structured, model/arch, model/arch/checkpoint, model/templates,
// model/text/tokenizer/file.
#pragma once

#include <filesystem>
#include <string>

#include "model/arch/model.h"
#include "model/templates/chat.h"

namespace lumen::model::arch {

// Sets the model's chat template: its tokenizer gets the template and its end-of-turn tokens, and so do the files and
// the metadata that are written with the model. The model must have a tokenizer.
void take_chat(Model& model, const templates::ChosenTemplate& chosen);

// The chat template stored in an adapter's folder or file; empty where there is none.
std::string adapter_chat_template(const std::filesystem::path& adapter);

}  // namespace lumen::model::arch
