// The formats a program knows: those embedded from formats/*.lum and those a user adds with --formats DIR.
//
// May include: base, base/file, base/messages, lang, number/facts, number/format, number/read.
// Offers: by_rows.h.
#pragma once

#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "lang/ast.h"
#include "number/format/format.h"

namespace lumen {

class FormatLibrary {
 public:
  static FormatLibrary builtin();                        // parses the embedded texts; cheap enough for every start
  void add(const lang::File& file);                      // all formats of a file; Error on clashes and mistakes
  void add_folder(const std::filesystem::path& folder);  // every *.lum, in name order
  FormatRef find(std::string_view name) const;           // null when unknown
  FormatRef get(std::string_view name) const;            // Error with the nearest names as hint
  FormatRef by_gguf_type(int type) const;                // null when unknown
  std::vector<FormatRef> all() const;                    // in order of names
  // Where a format is defined: "dir/a.lum:3"; empty when it is unknown.
  std::string place_of(std::string_view name) const;
  bool is_embedded(std::string_view name) const;
  // Why a format, of this library or from elsewhere, cannot have the ids in files that it claims: another one has them.
  std::optional<std::string> taken_id(const Format& f) const;

 private:
  void add_all(std::vector<lang::File> files, bool embedded = false);

  struct Origin {
    Place place;
    bool embedded = false;
  };
  std::map<std::string, FormatRef, std::less<>> formats_;
  std::map<std::string, Origin, std::less<>> origins_;  // by the format's name
  std::vector<lang::File> files_;                       // shared fit functions and tables
};

// Meaning of one declaration: checks fields, layouts, routines; messages carry places and hints.
FormatRef read_format(const lang::FormatDecl& decl, const std::vector<const lang::File*>& scope);

FormatRef read_format_alias(const lang::FormatAlias& alias, const std::vector<const lang::File*>& scope);

}  // namespace lumen
