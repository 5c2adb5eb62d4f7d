#include "model/infer/session/cache_format.h"

#include "base/error.h"
#include "number/library/by_rows.h"

namespace lumen::model::infer {

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
          ? fmt::format("a KV cache cannot have format '{}', which has fields per row and per tile or tensor", f->name)
          : fmt::format("a KV cache cannot have format '{}', which can only be decoded", f->name),
      "formats for --cache-type-k and --cache-type-v: " + names);
}

}  // namespace lumen::model::infer
