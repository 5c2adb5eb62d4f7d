// Contents of a user's .lum file other than models: a plain function as a graph, and formats. Must not depend on
// commands. Proved by tests/cli.
#pragma once

#include <string>
#include <vector>

#include "model/arch/family/family.h"

namespace lumen::model::arch {

// The function `name` of a file that is part of the library; Error when the file has none.
graph::Graph function_graph(const Library& library, const lang::File& file, const std::string& name);

// The formats that a file defines, without templates with parameters. A file of the library can be read from disk, too:
// on its own, when its names are taken.
std::vector<FormatRef> formats_of_text(const FormatLibrary& known, SourceRef source);

}  // namespace lumen::model::arch
