#include <memory>

#include "base/threads/team.h"
#include "model/compress/reconstruction/clip.h"
#include "model/compress/reconstruction/learning.h"

namespace lumen::model::compress {
namespace {

constexpr int kSteps = 200;
constexpr float kRate = 0.03F;
constexpr float kFirst = 4;  // logit of the initial factor, 0.982

struct Clipping {
  const LearnedWeight& weight;
  ClippedFit clip;
  Neighbours near;
  std::vector<float> rounded, below, above;  // below, above: logits of the factors
  // Groups with any gradient: the others (of experts without rows, of channels that are always 0) keep their whole
  // range.
  std::vector<bool> reached;
  bool begun = false;
  Adam adam_below, adam_above;

  Clipping(run::Engine& engine, const LearnedWeight& w)
      : weight(w),
        clip(engine, w.format, w.rows, w.columns, w.values, w.importance),
        below(clip.below.size(), kFirst),
        above(clip.above.size(), kFirst),
        adam_below(below.size()),
        adam_above(above.size()) {
    reached.assign(below.size(), false);
    rounded.resize(w.values.size());
  }

  static float sigmoid(float x) { return 1 / (1 + std::exp(-x)); }

  void round() {
    for (size_t g = 0; g < below.size(); ++g) {
      clip.below[g] = begun && !reached[g] ? 1 : sigmoid(below[g]);
      clip.above[g] = begun && !reached[g] ? 1 : sigmoid(above[g]);
    }
    clip.refit();
    clip.grid().find(weight.values, &near);
    parallel_for(0, std::ssize(rounded),
                 [&](int64_t i) { rounded[i] = near.share[i] >= 0.5F ? near.up[i] : near.low[i]; });
  }
  void move(std::span<const float> gradient, float rate) {
    ClippedFit::Slopes slopes;
    clip.slopes(weight.values, rounded, gradient, &slopes);
    begun = true;
    for (int64_t r = 0; r < weight.rows; ++r)
      for (int64_t c = 0; c < weight.columns; ++c)
        if (gradient[r * weight.columns + c] != 0) reached[clip.grid().group_of(r, c)] = true;
    for (size_t g = 0; g < below.size(); ++g) {
      slopes.below[g] *= 1 - clip.below[g];  // derivative of log sigmoid
      slopes.above[g] *= 1 - clip.above[g];
    }
    adam_below.step(slopes.below, rate, below);
    adam_above.step(slopes.above, rate, above);
  }
};

}  // namespace

LearnedBlock learn_clipping(run::Engine& engine, BlockObjective& objective, std::span<const LearnedWeight> weights,
                            const LearnOptions& options, const LearnProgress& progress) {
  const int64_t steps = options.steps > 0 ? options.steps : kSteps;
  const float rate = options.rate > 0 ? options.rate : kRate;
  std::vector<std::unique_ptr<Clipping>> clippings;
  std::vector<std::vector<uint8_t>> plain;
  for (const LearnedWeight& w : weights) {
    clippings.push_back(std::make_unique<Clipping>(engine, w));
    plain.push_back(clippings.back()->clip.fit());
  }
  BestBlock best(engine, objective, weights, options.windows, std::move(plain));
  WindowDraw draw(objective.windows(), options.windows, options.seed);
  std::vector<std::vector<float>> gradients;
  const auto round = [&] {
    for (size_t i = 0; i < clippings.size(); ++i) {
      clippings[i]->round();
      objective.set(i, clippings[i]->rounded);
    }
  };
  for (int64_t step = 0; step < steps; ++step) {
    round();
    objective.gradients(draw.next(), &gradients);
    for (size_t i = 0; i < clippings.size(); ++i) clippings[i]->move(gradients[i], rate);
    if (is_looked_at(step + 1, steps)) {
      round();
      best.consider([&] {
        std::vector<std::vector<uint8_t>> blobs;
        for (const auto& c : clippings) blobs.push_back(c->clip.grid().store(c->rounded));
        return blobs;
      });
    }
    if (progress) progress(step + 1, steps);
  }
  return best.take();
}

}  // namespace lumen::model::compress
