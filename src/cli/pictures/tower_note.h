// What a user is told when a model is written without the tower that it was read with. Proved by
// tests/cli/pictures/mmproj_check.py.
#pragma once

#include <filesystem>
#include <string>

#include "model/arch/model.h"

namespace lumen::cli {

// Where the model at `in` has a tower, which `out` has not: a note that says how the two go together.
void note_tower(const model::arch::LibraryRef& library, const std::filesystem::path& in, const std::string& out);

}  // namespace lumen::cli
