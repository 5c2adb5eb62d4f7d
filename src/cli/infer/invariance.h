// Whether a command's sessions are independent of what else runs (SessionOptions::invariant): --batch-invariant,
// --no-batch-invariant, or the device's default. Proved by tests/cli/serve/invariance_check.py.
#pragma once

#include <CLI/CLI.hpp>
#include <optional>

#include "model/infer/session/session.h"

namespace lumen::cli {

struct InvarianceFlag {
  std::optional<bool> wanted;
  void add_to(CLI::App& app);
  // Without either flag: on processors.
  void choose(run::Engine& engine, model::infer::SessionOptions* session) const;
};

}  // namespace lumen::cli
