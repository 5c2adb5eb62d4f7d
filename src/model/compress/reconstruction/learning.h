// Shared by all learning methods: random windows for steps, Adam, and the best state found.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <random>
#include <span>
#include <vector>

#include "model/compress/reconstruction/learn.h"

namespace lumen::model::compress {

// Batches of windows: random permutations of all windows, one after the other.
class WindowDraw {
 public:
  WindowDraw(int64_t windows, int64_t at_once, uint64_t seed);
  std::span<const int64_t> next();

 private:
  std::mt19937_64 random_;
  std::vector<int64_t> order_, some_;
  size_t at_;
};

// Adam (Kingma and Ba) without decay. No epsilon: steps depend only on the root of second moments, so the objective may
// be arbitrarily small.
class Adam {
 public:
  explicit Adam(size_t size, float beta1 = 0.9F, float beta2 = 0.99F)
      : m_(size), v_(size), beta1_(beta1), beta2_(beta2) {}
  void step(std::span<const float> gradient, float rate, std::span<float> values);

 private:
  std::vector<float> m_, v_;
  const float beta1_, beta2_;
  int64_t steps_ = 0;
};

// Evaluates roundings of a block on all windows, and keeps the best.
class BestBlock {
 public:
  // Starts with `plain`, each format's own encoding.
  BestBlock(run::Engine& engine, BlockObjective& objective, std::span<const LearnedWeight> weights, int64_t at_once,
            std::vector<std::vector<uint8_t>> plain);
  // Evaluates the objective's current weights; `blobs` returns their bytes.
  template <class Blobs>
  void consider(const Blobs& blobs) {
    const double loss = objective_.loss_of_all(at_once_);
    if (loss >= best_.after) return;
    best_.after = loss;
    best_.blobs = blobs();
  }
  LearnedBlock take() { return std::move(best_); }

 private:
  BlockObjective& objective_;
  const int64_t at_once_;
  LearnedBlock best_;
};

// Whether to evaluate after this step: at the end, and a few times before.
bool is_looked_at(int64_t done, int64_t steps);

}  // namespace lumen::model::compress
