// The entry point of format reading: one declaration, or an alias of a parametrised one, becomes a Format. Proved by
// tests/number/reader_test.cpp.
#include "base/messages/spelling.h"
#include "number/library/library.h"
#include "number/read/declaration.h"

namespace lumen {

FormatRef read_format(const lang::FormatDecl& decl, const std::vector<const lang::File*>& scope) {
  read::Names names(scope);
  return std::make_shared<Format>(read::read_instance(names, {decl, nullptr}));
}

FormatRef read_format_alias(const lang::FormatAlias& alias, const std::vector<const lang::File*>& scope) {
  read::Names names(scope);
  const lang::FormatDecl* decl = names.format(alias.value->text);
  if (!decl) {
    std::vector<std::string> known;
    for (const lang::File* file : scope) {
      for (const lang::FormatDecl& f : file->formats) known.push_back(f.name);
    }
    throw error_at(alias.value->place, fmt::format("there is no format '{}'", alias.value->text),
                   did_you_mean_any(alias.value->text, known));
  }
  return std::make_shared<Format>(read::read_instance(names, {*decl, &alias}));
}

}  // namespace lumen
