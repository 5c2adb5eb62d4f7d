// `lumen quantize --recipe`: takes options from a recipe's [compress] where the command line does not set them.
#pragma once

#include <string>

#include "cli/command.h"

namespace lumen::cli {

// `name`: a recipe of the library, or a file. Error (usage) where it has no [compress], has a key that is no option of
// the command, or has a value that the option refuses.
void take_recipe(CLI::App& sub, const model::arch::Library& library, const std::string& name);

}  // namespace lumen::cli
