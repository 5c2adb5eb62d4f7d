#include "model/arch/family/source.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/embedded.h"
#include "base/error.h"
#include "graph/elaborate/elaborate.h"
#include "lang/parser.h"

namespace lumen::model::arch {

namespace {

template <typename Declaration>
void add_others(std::vector<Declaration>& to, const std::vector<Declaration>& shipped) {
  for (const Declaration& d : shipped)
    if (std::ranges::find(to, d.name, &Declaration::name) == to.end()) to.push_back(d);
}

// A changed version of a shipped file, with what the others define: its routines may use their functions and tables.
lang::File among_shipped(lang::File file) {
  for (const embedded::File& e : embedded::formats()) {
    const lang::File other =
        lang::parse_file(std::make_shared<Source>(Source{fmt::format("<embedded {}>", e.path), std::string(e.text)}));
    add_others(file.formats, other.formats);
    add_others(file.aliases, other.aliases);
    add_others(file.functions, other.functions);
    add_others(file.tables, other.tables);
  }
  return file;
}

}  // namespace

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
  own.add(taken ? among_shipped(file) : file);
  std::vector<FormatRef> formats;
  for (const std::string& name : names) formats.push_back(own.get(name));
  return formats;
}

}  // namespace lumen::model::arch
