#include "model/recipe/offload_settings.h"

#include "base/error.h"

namespace lumen::model::recipe {

OffloadSettings offload_settings(const std::string& text) {
  OffloadSettings out;
  if (text.empty()) return out;
  for (size_t at = 0; at <= text.size();) {
    const size_t comma = std::min(text.find(',', at), text.size());
    const std::string one = text.substr(at, comma - at);
    const size_t equals = std::min(one.find('='), one.size());
    const std::string what = one.substr(0, equals);
    const bool is_known = what == "moments" || what == "layers" || what == "activations";
    if (!is_known || (equals < one.size() && equals + 1 == one.size()))
      throw Error(Exit::usage, fmt::format("memory.offload: '{}' cannot be offloaded", one),
                  "moments, layers or activations, alone, with =host or with =FOLDER");
    std::optional<OffloadPlace>& to = what == "moments" ? out.moments : what == "layers" ? out.layers : out.activations;
    if (to) throw usage_error("memory.offload: '{}' is named twice", what);
    OffloadPlace place;
    place.folder = equals < one.size() ? one.substr(equals + 1) : "";
    place.host = place.folder == "host";
    if (place.host) place.folder.clear();
    to = place;
    at = comma + 1;
  }
  if (out.layers && !out.moments) out.moments = out.layers;
  return out;
}

}  // namespace lumen::model::recipe
