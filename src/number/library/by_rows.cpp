// The definition's text is rewritten, so the result is read and checked like any other.
#include "number/library/by_rows.h"

#include <algorithm>

#include "lang/parser.h"
#include "number/library/library.h"

namespace lumen {
namespace {

constexpr std::string_view kFit = "fit ";

bool is_outer(std::string_view level) {
  return level == "row" || level == "tile" || level == "tensor";
}

}  // namespace

FormatRef by_rows(const FormatRef& f) {
  if (f->tile_bytes == 0 && f->tensor_bytes == 0) return f;
  if ((f->row_bytes > 0) + (f->tile_bytes > 0) + (f->tensor_bytes > 0) > 1) return nullptr;
  lang::File file = lang::parse_file(std::make_shared<Source>(Source{f->name + ", by rows", f->source_text}));
  std::string defined = f->name;
  const auto files_alone = [](const lang::Attribute& a) { return a.name != "block" && a.name != "doc"; };
  for (lang::FormatAlias& a : file.aliases) {
    if (a.name != f->name) continue;
    defined = a.value->text;
    std::erase_if(a.attributes, files_alone);
  }
  for (lang::FormatDecl& d : file.formats) {
    if (d.name != defined) continue;
    std::erase_if(d.attributes, files_alone);
    for (lang::FieldDecl& field : d.fields)
      if (is_outer(field.level)) field.level = "row";
    // Fits of levels that have no fields assign nothing.
    std::erase_if(d.routines, [&](const lang::Function& r) {
      return r.name.starts_with(kFit) && r.name != (f->tile_bytes > 0 ? "fit tile" : "fit tensor");
    });
    for (lang::Function& r : d.routines)
      if (r.name.starts_with(kFit)) r.name = "fit row";
  }
  FormatLibrary own;
  own.add(lang::parse_file(std::make_shared<Source>(Source{f->name + ", by rows", lang::print_file(file)})));
  return own.find(f->name);
}

}  // namespace lumen
