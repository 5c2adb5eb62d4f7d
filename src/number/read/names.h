// The declarations a format may refer to: functions, tables and other formats of the files in scope. Records which were
// used, so that a format's text can be made self-contained.
#pragma once

#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "lang/ast.h"

namespace lumen::read {

class Names {
 public:
  explicit Names(const std::vector<const lang::File*>& files) : files_(files) {}

  const lang::Function* function(std::string_view name);  // null when unknown; marks it used
  const lang::Table* table(std::string_view name);
  const lang::FormatDecl* format(std::string_view name);
  const lang::FormatAlias* alias(std::string_view name) const;

  const std::set<std::string, std::less<>>& used() const { return used_; }
  const std::vector<const lang::File*>& files() const { return files_; }

 private:
  std::vector<const lang::File*> files_;
  std::set<std::string, std::less<>> used_;
};

}  // namespace lumen::read
