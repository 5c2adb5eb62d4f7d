// What a recipe says of the formats that a trained adapter is shipped in. Proved by
// tests/model/train/adapter/ship_test.cpp.
#pragma once

#include <string>
#include <vector>

namespace lumen::model {

// [ship] of a recipe.
struct ShipSettings {
  std::string type;               // of the merged model: "base" (each weight as it is held), a format or a mixture
  std::string fields = "fitted";  // or "learned": scales and offsets are trained (LSQ, learned clipping)
  bool magnitudes = false;        // one for each group of the format
  std::vector<std::string> trains = {"adapter", "fields", "magnitudes"};  // of these, in this phase
  double max_kl = 1e-3;  // nats per token the written file may be away from what was trained

  bool ships() const { return !type.empty(); }
  bool learns() const { return fields == "learned"; }
};
// Error (usage) when a word is not known.
void check_ship(const ShipSettings& settings);

}  // namespace lumen::model
