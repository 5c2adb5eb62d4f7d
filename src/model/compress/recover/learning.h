// What all ways of learning share: windows drawn for steps, Adam, and the best of what was seen.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <random>
#include <span>
#include <vector>

#include "model/compress/recover/learn.h"

namespace lumen::model {

// All windows in a random order, again and again, so many at a time.
class WindowDraw {
 public:
  WindowDraw(int64_t windows, int64_t at_once, uint64_t seed);
  std::span<const int64_t> next();

 private:
  std::mt19937_64 random_;
  std::vector<int64_t> order_, some_;
  size_t at_;
};

// Adam (Kingma and Ba) without decay. Steps are relative to the root of second moments alone: an objective may be as
// small as it likes.
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

// Roundings of a block are tried on all windows; the best stays.
class BestBlock {
 public:
  // Begins with each format's own encoding, which `plain` has.
  BestBlock(run::Engine& engine, BlockObjective& objective, std::span<const LearnedWeight> weights, int64_t at_once,
            std::vector<std::vector<uint8_t>> plain);
  // Tries what the objective's weights are set to; `blobs` makes their bytes.
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

// Whether what was learned is looked at behind this step: at the end, and a few times before.
bool is_looked_at(int64_t done, int64_t steps);

}  // namespace lumen::model
