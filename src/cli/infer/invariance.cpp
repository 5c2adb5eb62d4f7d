#include "cli/infer/invariance.h"

#include "cli/settings/declare.h"

namespace lumen::cli {

void InvarianceFlag::add_to(CLI::App& app) {
  add_flag_function(app, "--batch-invariant", [this](bool is_wanted) { wanted = is_wanted; });
}

void InvarianceFlag::choose(run::Engine& engine, model::infer::SessionOptions* session) const {
  session->invariant = wanted.value_or(engine.device().machine().kind == machine::Kind::cpu);
  session->stepwise = wanted.value_or(false);
}

}  // namespace lumen::cli
