// What commands need of a user's .lum text besides models: a plain function as a graph, and the formats a file defines.
// Must not know: commands. Proved by tests/cli.
#pragma once

#include <string>
#include <vector>

#include "model/arch/family/family.h"

namespace lumen::model {

// The function called `name` of a file that is part of the library; Error when the file has none.
graph::Graph function_graph(const Library& library, const lang::File& file, const std::string& name);

// The formats a text defines, without those that are templates with parameters. A file of the library itself may be
// read as it stands on disk: alone, when its names are taken.
std::vector<FormatRef> formats_of_text(const FormatLibrary& known, SourceRef source);

}  // namespace lumen::model
