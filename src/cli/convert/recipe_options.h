// `lumen quantize --recipe`: options that a recipe's [compress] gives, where the command line does not.
#pragma once

#include <string>

#include "cli/command.h"

namespace lumen::cli {

// `name`: a recipe of the library, or a file. Error (usage) where it has no [compress], or one of its keys is no option
// of the command, or an option refuses its value.
void take_recipe(CLI::App& sub, const model::Library& library, const std::string& name);

}  // namespace lumen::cli
