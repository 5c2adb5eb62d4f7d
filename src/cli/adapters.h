// Options of commands that run a model with adapters.
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

#include "model/infer/session/session.h"
#include "model/templates/chat.h"

namespace lumen::cli {

struct AdapterFlags {
  std::vector<std::string> plain, scaled;

  void add_flags(CLI::App& app);
  // The chat template that the adapters were trained with; empty where they store none. Error where two adapters store
  // different ones.
  std::string chat_template() const;
  // Reads the adapters and prints which ones; Error when one does not fit the model.
  std::vector<model::arch::ScaledAdapter> read(const model::arch::Model& model) const;
};

// The chat template for a model with adapters: the one requested by name or file, else the one that the adapters were
// trained with, else the model's own.
model::templates::ChosenTemplate choose_chat(const std::string& name, const AdapterFlags& adapters,
                                             const model::text::Tokenizer& tokenizer);

}  // namespace lumen::cli
