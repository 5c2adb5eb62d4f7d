// Flags of commands that run a model with adapters beside it.
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

#include "model/infer/session/session.h"
#include "model/template/chat.h"

namespace lumen::cli {

struct AdapterFlags {
  std::vector<std::string> plain, scaled;

  void add_flags(CLI::App& app);
  // The chat template that they were trained with; empty where they carry none. Error where two carry different ones.
  std::string chat_template() const;
  // Reads them and says which; Error when one does not fit the model.
  std::vector<model::ScaledAdapter> read(const model::Model& model) const;
};

// The template of chats with a model and its adapters: the one that was asked for by name or file, else the one that
// the adapters were trained with, else the model's own.
model::ChosenTemplate choose_chat(const std::string& name, const AdapterFlags& adapters,
                                  const model::Tokenizer& tokenizer);

}  // namespace lumen::cli
