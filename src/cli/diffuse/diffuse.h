// Commands of diffusion: images made up, a family trained on images, images drawn from it.
//
// May include: base, base/file, cli, model/diffuse, model/file, model/images.
#pragma once

#include <CLI/CLI.hpp>

#include "cli/command.h"

namespace lumen::cli {

// Each adds a command to `lumen diffuse`.
void add_diffuse_data(CLI::App& app, Command& command);
void add_diffuse_train(CLI::App& app, Command& command);
void add_diffuse_sample(CLI::App& app, Command& command);

}  // namespace lumen::cli
