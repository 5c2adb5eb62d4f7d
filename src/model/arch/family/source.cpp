#include "model/arch/family/source.h"

#include <algorithm>

#include "base/error.h"
#include "graph/elaborate/elaborate.h"
#include "lang/parser.h"

namespace lumen::model::arch {

graph::Graph function_graph(const Library& library, const lang::File& file, const std::string& name) {
  const graph::Scope scope = library.scope();
  for (const lang::Function& f : file.functions)
    if (f.name == name) return graph::elaborate_function(scope, f);
  throw user_error("{} has no function '{}'", file.source->name, name);
}

std::vector<FormatRef> formats_of_text(const FormatLibrary& known, SourceRef source) {
  const lang::File file = lang::parse_file(source);
  std::vector<std::string> names;
  for (const lang::FormatDecl& d : file.formats)
    if (d.params.empty()) names.push_back(d.name);
  for (const lang::FormatAlias& a : file.aliases) names.push_back(a.name);
  if (names.empty()) throw user_error("{} defines no format", source->name);
  const bool taken =
      std::any_of(names.begin(), names.end(), [&](const std::string& n) { return known.find(n) != nullptr; });
  FormatLibrary own = taken ? FormatLibrary() : known;
  own.add(file);
  std::vector<FormatRef> formats;
  for (const std::string& name : names) formats.push_back(own.get(name));
  return formats;
}

}  // namespace lumen::model::arch
