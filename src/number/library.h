// The formats a program knows: those embedded from formats/*.lum and those a user adds with --formats DIR.
#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "lang/ast.h"
#include "number/format.h"

namespace lumen {

class FormatLibrary {
 public:
  static FormatLibrary builtin();                          // parses the embedded texts; cheap enough for every start
  void add(const lang::File& file);                        // all formats of a file; Error on clashes and mistakes
  void add_folder(const std::filesystem::path& folder);    // every *.lum, in name order
  FormatRef find(std::string_view name) const;             // null when unknown
  FormatRef get(std::string_view name) const;              // Error with the nearest names as hint
  FormatRef by_gguf_type(int type) const;                  // null when unknown
  std::vector<FormatRef> all() const;                      // in order of names

 private:
  void add_all(std::vector<lang::File> files);

  std::map<std::string, FormatRef, std::less<>> formats_;
  std::vector<lang::File> files_;                          // shared fit functions and tables
};

// Meaning of one declaration: checks fields, layouts, routines; messages carry places and hints.
FormatRef read_format(const lang::FormatDecl& decl, const std::vector<const lang::File*>& scope);

FormatRef read_format_alias(const lang::FormatAlias& alias, const std::vector<const lang::File*>& scope);

}  // namespace lumen
