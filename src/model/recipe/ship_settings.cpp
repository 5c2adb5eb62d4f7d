#include "model/recipe/ship_settings.h"

#include "base/error.h"

namespace lumen::model {

void check_ship(const ShipSettings& s) {
  if (s.fields != "fitted" && s.fields != "learned")
    throw Error(Exit::usage, fmt::format("ship.fields '{}' is not known", s.fields), "known: fitted, learned");
  for (const std::string& one : s.trains)
    if (one != "adapter" && one != "fields" && one != "magnitudes")
      throw Error(Exit::usage, fmt::format("ship.trains '{}' is not known", one), "known: adapter, fields, magnitudes");
  if (!s.ships() && (s.learns() || s.magnitudes))
    throw Error(Exit::usage, "ship.fields and ship.magnitudes need a format to ship, but ship.type names none",
                "add --ship FORMAT");
}

}  // namespace lumen::model
