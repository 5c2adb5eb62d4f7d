#include <memory>
#include <numbers>
#include <optional>

#include "base/threads/team.h"
#include "model/compress/reconstruction/clip.h"
#include "model/compress/reconstruction/learning.h"

namespace lumen::model::compress {
namespace {

constexpr int kSteps = 400;
constexpr float kRate = 0.02F;        // of values, times their RMS
constexpr float kFactorRate = 0.25F;  // of factors' logarithms, times the rate of values
constexpr float kLast = 0.05F;        // of the rate, at the end

struct Values {
  const LearnedWeight& weight;
  run::Engine& engine;
  std::optional<ClippedFit> clip;  // nullopt: the format encodes values again
  Neighbours near;
  std::vector<float> w, rounded, below, above;  // below, above: logarithms of factors
  std::vector<uint8_t> blob;
  Adam adam;
  std::optional<Adam> adam_below, adam_above;
  float size = 0;  // of values

  Values(run::Engine& e, const LearnedWeight& l)
      : weight(l), engine(e), w(l.values.begin(), l.values.end()), rounded(w.size()), adam(w.size()) {
    double squares = 0;
    for (const float x : w) squares += double{x} * x;
    size = std::sqrt(squares / std::max<size_t>(w.size(), 1));
    ElementCodes codes;
    std::string why;
    if (!find_element_codes(*l.format, &codes, &why)) return;
    clip.emplace(e, l.format, l.rows, l.columns, l.values, l.importance);
    below.assign(clip->below.size(), 0);
    above.assign(below.size(), 0);
    adam_below.emplace(below.size());
    adam_above.emplace(below.size());
  }

  std::vector<uint8_t> plain() const {
    return engine.encode(weight.format, weight.values.data(), weight.rows, weight.columns, weight.importance);
  }
  void round() {
    if (!clip) {
      blob = engine.encode(weight.format, w.data(), weight.rows, weight.columns, weight.importance);
      rounded = engine.decode(weight.format, blob.data(), weight.rows, weight.columns);
      return;
    }
    for (size_t g = 0; g < below.size(); ++g) {
      clip->below[g] = std::exp(below[g]);
      clip->above[g] = std::exp(above[g]);
    }
    clip->refit();
    clip->grid().find(w, &near);
    parallel_for(0, std::ssize(rounded),
                 [&](int64_t i) { rounded[i] = near.share[i] >= 0.5F ? near.up[i] : near.low[i]; });
  }
  std::vector<uint8_t> stored() const { return clip ? clip->grid().store(rounded) : blob; }

  void move(std::span<const float> gradient, float rate) {
    if (!clip) {
      adam.step(gradient, rate * size, w);
      return;
    }
    ClippedFit::Slopes slopes;
    clip->slopes(w, rounded, gradient, &slopes);
    // Straight-through, except for values beyond a range's end that would move further out.
    std::vector<float> through(gradient.begin(), gradient.end());
    parallel_for(0, std::ssize(through), [&](int64_t i) {
      if (!(near.up[i] > near.low[i]) && (w[i] - near.low[i]) * gradient[i] < 0) through[i] = 0;
    });
    adam.step(through, rate * size, w);
    adam_below->step(slopes.below, rate * kFactorRate, below);
    adam_above->step(slopes.above, rate * kFactorRate, above);
  }
};

}  // namespace

LearnedBlock learn_values(run::Engine& engine, BlockObjective& objective, std::span<const LearnedWeight> weights,
                          const LearnOptions& options, const LearnProgress& progress) {
  const int64_t steps = options.steps > 0 ? options.steps : kSteps;
  const float rate = options.rate > 0 ? options.rate : kRate;
  std::vector<std::unique_ptr<Values>> all;
  std::vector<std::vector<uint8_t>> plain;
  for (const LearnedWeight& w : weights) {
    all.push_back(std::make_unique<Values>(engine, w));
    plain.push_back(all.back()->plain());
  }
  BestBlock best(engine, objective, weights, options.windows, std::move(plain));
  WindowDraw draw(objective.windows(), options.windows, options.seed);
  std::vector<std::vector<float>> gradients;
  const auto round = [&] {
    for (size_t i = 0; i < all.size(); ++i) {
      all[i]->round();
      objective.set(i, all[i]->rounded);
    }
  };
  for (int64_t step = 0; step < steps; ++step) {
    round();
    objective.gradients(draw.next(), &gradients);
    const float wave = 0.5F * (1 + std::cos(std::numbers::pi_v<float> * step / steps));
    for (const auto& v : all) {
      const size_t i = &v - all.data();
      v->move(gradients[i], rate * (kLast + (1 - kLast) * wave));
    }
    if (is_looked_at(step + 1, steps)) {
      round();
      best.consider([&] {
        std::vector<std::vector<uint8_t>> blobs;
        for (const auto& v : all) blobs.push_back(v->stored());
        return blobs;
      });
    }
    if (progress) progress(step + 1, steps);
  }
  return best.take();
}

}  // namespace lumen::model::compress
