// `lumen rewrite --learn-rotation`: rotations trained to minimize quantization error.
#pragma once

#include "cli/convert/calibrated.h"
#include "model/compress/equivalent_transform/equivalent_transform.h"

namespace lumen::cli {

struct LearnedRotationFlags : LayerTextFlags {
  std::string format, activations, loss = "kl";
  int steps = 0;  // 0 (also for `rate`): the default of the loss
  double rate = 0;
  int64_t step_windows = 8;

  void add_learning_flags(CLI::App& sub);
};

// Rotations by site and block, in the order of `start`. `model` must be in f32. Prints the improvement.
std::vector<std::vector<model::compress::Rotation>> learned_rotations(
    run::Engine& engine, const model::arch::Model& model, const std::vector<graph::RotationSite>& sites,
    const std::vector<std::vector<model::compress::Rotation>>& start, LearnedRotationFlags& flags, uint32_t seed);

}  // namespace lumen::cli
