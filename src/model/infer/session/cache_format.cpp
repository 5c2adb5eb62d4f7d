#include "model/infer/session/cache_format.h"

#include "base/error.h"
#include "number/library/by_rows.h"

namespace lumen::model {

FormatRef cache_format(const FormatLibrary& formats, const FormatRef& f) {
  if (!f) return nullptr;
  if (f->encodes())
    if (FormatRef held = by_rows(f)) return held;
  std::string names;
  for (const FormatRef& other : formats.all())
    if (other->encodes() && by_rows(other)) names += (names.empty() ? "" : " ") + other->name;
  throw Error(
      Exit::user,
      f->encodes()
          ? fmt::format("a cache cannot be held in format '{}', which has fields of rows and of tiles or tensors",
                        f->name)
          : fmt::format("a cache cannot be held in format '{}', which only decodes", f->name),
      "formats for --cache-type-k and --cache-type-v: " + names);
}

}  // namespace lumen::model
