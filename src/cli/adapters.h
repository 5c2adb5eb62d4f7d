// Flags of commands that run a model with adapters beside it.
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

#include "model/infer/session/session.h"

namespace lumen::cli {

struct AdapterFlags {
  std::vector<std::string> plain, scaled;

  void add_flags(CLI::App& app);
  // Reads them and says which; Error when one does not fit the model.
  std::vector<model::ScaledAdapter> read(const model::Model& model) const;
};

}  // namespace lumen::cli
