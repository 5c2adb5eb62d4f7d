// The formats available to a program: those embedded from formats/*.lum and those a user adds with --formats DIR.
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
  // The location of a format's definition: "dir/a.lum:3"; empty for an unknown format.
  std::string place_of(std::string_view name) const;
  bool is_embedded(std::string_view name) const;
  // The reason why a format, of this library or from elsewhere, cannot use the file ids that it claims: another has
  // them.
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

// Semantic analysis of one declaration: checks fields, layouts, routines; messages have places and hints.
FormatRef read_format(const lang::FormatDecl& decl, const std::vector<const lang::File*>& scope);

FormatRef read_format_alias(const lang::FormatAlias& alias, const std::vector<const lang::File*>& scope);

}  // namespace lumen
