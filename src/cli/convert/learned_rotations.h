// `lumen rewrite --learn-rotation`: rotations learned by what rounding costs under them.
#pragma once

#include "cli/convert/calibrated.h"
#include "model/compress/rewrite/rewrite.h"

namespace lumen::cli {

struct LearnedRotationFlags : LayerTextFlags {
  std::string format, activations, loss = "kl";
  int steps = 0;  // 0, and of the rate: what the loss usually takes
  double rate = 0;
  int64_t step_windows = 8;

  void add_learning_flags(CLI::App& sub);
};

// Rotations by site and block, as `start` has them. `model`: f32, as sites need it. Says what it gained.
std::vector<std::vector<model::Rotation>> learned_rotations(run::Engine& engine, const model::Model& model,
                                                            const std::vector<graph::RotationSite>& sites,
                                                            const std::vector<std::vector<model::Rotation>>& start,
                                                            LearnedRotationFlags& flags, uint32_t seed);

}  // namespace lumen::cli
