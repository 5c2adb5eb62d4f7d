#include "model/train/guard.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"

namespace lumen::model {

std::optional<size_t> first_not_finite(std::span<const float> values, float largest) {
  const auto bad = std::find_if(values.begin(), values.end(), [&](float x) { return !(std::abs(x) <= largest); });
  if (bad == values.end()) return std::nullopt;
  return static_cast<size_t>(bad - values.begin());
}

void require_finite(std::span<const float> values, const std::string& where, const std::string& tensor,
                    const std::string& hint, float largest) {
  const auto bad = first_not_finite(values, largest);
  if (!bad) return;
  const float value = values[*bad];
  throw Error(Exit::numeric,
              fmt::format("{}: tensor '{}' holds {} (element {}){}", where, tensor, value, *bad,
                          std::isfinite(value) ? ", whose square is not finite" : ""),
              hint);
}

}  // namespace lumen::model
