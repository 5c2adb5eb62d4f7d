// Look-up of declarations by name. Proved by tests/number/reader_test.cpp.
#include "number/read/names.h"

#include <algorithm>

namespace lumen::read {
namespace {

template <typename Declaration>
const Declaration* find(const std::vector<const lang::File*>& files, std::string_view name,
                        std::vector<Declaration> lang::File::* list) {
  for (const lang::File* file : files) {
    for (const Declaration& declaration : file->*list) {
      if (declaration.name == name) return &declaration;
    }
  }
  return nullptr;
}

}  // namespace

const lang::Function* Names::function(std::string_view name) {
  const auto* found = find(files_, name, &lang::File::functions);
  if (found) used_.insert(found->name);
  return found;
}

const lang::Table* Names::table(std::string_view name) {
  const auto* found = find(files_, name, &lang::File::tables);
  if (found) used_.insert(found->name);
  return found;
}

const lang::FormatDecl* Names::format(std::string_view name) {
  const auto* found = find(files_, name, &lang::File::formats);
  if (found) used_.insert(found->name);
  return found;
}

const lang::FormatAlias* Names::alias(std::string_view name) const {
  return find(files_, name, &lang::File::aliases);
}

}  // namespace lumen::read
