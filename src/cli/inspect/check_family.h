// `lumen compile --check-family`: compares what a family's text computes with a recording of another program. Proved by
// tests/cli/inspect/check_family_test.cpp.
#pragma once

#include <string>

#include "cli/command.h"

namespace lumen::cli {

// `file`: the family's text, or the name of a known family. `against`: the folder of a recording. Prints a table;
// returns Exit::verify where an output differs.
int check_family(const Shared& shared, const std::string& file, const std::string& against);

}  // namespace lumen::cli
