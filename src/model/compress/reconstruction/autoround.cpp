#include <memory>

#include "base/threads/team.h"
#include "model/compress/reconstruction/clip.h"
#include "model/compress/reconstruction/learning.h"

namespace lumen::model::compress {
namespace {

constexpr int kSteps = 200;
constexpr float kLeastFactor = 0.3F, kMostFactor = 1.1F;

float sign(float x) {
  return x > 0 ? 1.0F : x < 0 ? -1.0F : 0.0F;
}

struct Moving {
  const LearnedWeight& weight;
  ClippedFit clip;
  Neighbours near;
  std::vector<float> shift, rounded;  // shift: -0.5..0.5 of the distance between neighbours

  Moving(run::Engine& engine, const LearnedWeight& w)
      : weight(w), clip(engine, w.format, w.rows, w.columns, w.values, w.importance) {
    shift.assign(w.values.size(), 0);
    rounded.resize(w.values.size());
  }

  void refit() {
    clip.refit();
    clip.grid().find(weight.values, &near);
  }
  void round() {
    parallel_for(0, std::ssize(rounded),
                 [&](int64_t i) { rounded[i] = near.share[i] + shift[i] >= 0.5F ? near.up[i] : near.low[i]; });
  }
  void move(std::span<const float> gradient, float rate) {
    ClippedFit::Slopes slopes;
    clip.slopes(weight.values, rounded, gradient, &slopes);
    parallel_for(0, std::ssize(shift), [&](int64_t i) {
      if (near.up[i] > near.low[i]) shift[i] = std::clamp(shift[i] - rate * sign(gradient[i]), -0.5F, 0.5F);
    });
    const auto move_factors = [&](std::vector<float>& factors, const std::vector<float>& s) {
      for (size_t g = 0; g < factors.size(); ++g)
        factors[g] = std::clamp(factors[g] - rate * sign(s[g]), kLeastFactor, kMostFactor);
    };
    move_factors(clip.below, slopes.below);
    move_factors(clip.above, slopes.above);
  }
};

}  // namespace

LearnedBlock learn_by_signs(run::Engine& engine, BlockObjective& objective, std::span<const LearnedWeight> weights,
                            const LearnOptions& options, const LearnProgress& progress) {
  const int64_t steps = options.steps > 0 ? options.steps : kSteps;
  const float rate = options.rate > 0 ? options.rate : 1.0F / steps;
  std::vector<std::unique_ptr<Moving>> moving;
  std::vector<std::vector<uint8_t>> plain;
  for (const LearnedWeight& w : weights) {
    moving.push_back(std::make_unique<Moving>(engine, w));
    plain.push_back(moving.back()->clip.fit());
  }
  BestBlock best(engine, objective, weights, options.windows, std::move(plain));
  WindowDraw draw(objective.windows(), options.windows, options.seed);
  std::vector<std::vector<float>> gradients;
  const auto round = [&] {
    for (size_t i = 0; i < moving.size(); ++i) {
      moving[i]->refit();
      moving[i]->round();
      objective.set(i, moving[i]->rounded);
    }
  };
  for (int64_t step = 0; step < steps; ++step) {
    round();
    objective.gradients(draw.next(), &gradients);
    const float now = rate * (1 - 1.0F * step / steps);
    for (size_t i = 0; i < moving.size(); ++i) moving[i]->move(gradients[i], now);
    if (is_looked_at(step + 1, steps)) {
      round();
      best.consider([&] {
        std::vector<std::vector<uint8_t>> blobs;
        for (const auto& m : moving) blobs.push_back(m->clip.grid().store(m->rounded));
        return blobs;
      });
    }
    if (progress) progress(step + 1, steps);
  }
  return best.take();
}

}  // namespace lumen::model::compress
