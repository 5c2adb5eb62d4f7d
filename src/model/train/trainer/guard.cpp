#include "model/train/trainer/guard.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "run/engine/feedback/first_not_finite.h"

namespace lumen::model::train {

std::optional<size_t> first_not_finite(std::span<const float> values, float largest) {
  return run::first_not_finite(values, largest);
}

std::string spike_of(const RunState& state, double factor, double loss, double norm) {
  constexpr size_t kFewest = 5;
  if (factor <= 0 || state.losses.size() < kFewest) return {};
  const auto look = [&](const char* name, std::vector<double> past, double value) -> std::string {
    const auto middle = past.begin() + past.size() / 2;
    std::nth_element(past.begin(), middle, past.end());
    if (!(*middle > 0) || value <= factor * *middle) return {};
    return fmt::format("{} {:.4g} is {:.3g} times the median {:.4g} of the last {} steps", name, value, value / *middle,
                       *middle, past.size());
  };
  const std::string of_loss = look("loss", state.losses, loss);
  return of_loss.empty() ? look("gradient norm", state.norms, norm) : of_loss;
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

}  // namespace lumen::model::train
