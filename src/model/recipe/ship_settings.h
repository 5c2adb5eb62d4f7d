// Settings of a recipe for the formats in which a trained adapter is shipped. Proved by
// tests/model/train/adapter/ship_test.cpp.
#pragma once

#include <string>
#include <vector>

namespace lumen::model {

// [ship] of a recipe.
struct ShipSettings {
  std::string type;               // of the merged model: "base" (each weight's own type), a format or a mixture
  std::string fields = "fitted";  // or "learned": scales and offsets are trained (LSQ, learned clipping)
  bool magnitudes = false;        // one for each group of the format
  std::vector<std::string> trains = {"adapter", "fields", "magnitudes"};  // trained in this phase
  double max_kl = 1e-3;  // limit of the KL divergence of the written file from the trained model, nats per token

  bool ships() const { return !type.empty(); }
  bool learns() const { return fields == "learned"; }
};
// Error (usage) when a name is unknown.
void check_ship(const ShipSettings& settings);

}  // namespace lumen::model
