#include "model/compress/rotate/learn_rotations.h"

#include <cmath>
#include <numbers>

#include "base/error.h"
#include "model/compress/reconstruction/learning.h"
#include "model/compress/rotate/cayley.h"

namespace lumen::model::compress {

LearnedRotations learn_rotations(RotatedWeights& weights, RotationObjective& objective,
                                 const LearnRotationOptions& options,
                                 const std::function<void(const RotationProgress&)>& progress,
                                 const std::function<bool()>& stop) {
  std::vector<CayleyDescent> descents;
  LearnedRotations best;
  for (size_t s = 0; s < weights.spaces().size(); ++s) {
    best.rotations.push_back(weights.rotation(s));
    descents.emplace_back(weights.spaces()[s].width, weights.rotation(s), options.momentum);
  }
  best.before = best.after = objective.value();
  for (int step = 0; step < options.steps; ++step) {
    weights.clear_gradients();
    const double cost = objective.add_gradients();
    if (!std::isfinite(cost))
      throw Error(Exit::numeric, "the quantization loss is not finite while rotations are learned",
                  "a smaller --rate may help");
    const double wave = 0.5 * (1 + std::cos(std::numbers::pi * step / options.steps));
    for (size_t s = 0; s < descents.size(); ++s) {
      descents[s].step(weights.gradients()[s], options.rate * wave);
      weights.set(s, descents[s].matrix());
    }
    if (progress) progress({step + 1, options.steps, cost});
    const bool ends = stop && stop();
    if (!ends && !is_looked_at(step + 1, options.steps)) continue;
    const double value = objective.value();
    if (value < best.after) {
      best.after = value;
      best.step = step + 1;
      for (size_t s = 0; s < descents.size(); ++s) best.rotations[s] = descents[s].matrix();
    }
    if (ends) break;
  }
  for (size_t s = 0; s < descents.size(); ++s) weights.set(s, best.rotations[s]);
  return best;
}

}  // namespace lumen::model::compress
