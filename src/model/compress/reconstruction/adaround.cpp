#include <memory>
#include <numbers>

#include "base/threads/team.h"
#include "model/compress/reconstruction/clip.h"
#include "model/compress/reconstruction/learning.h"

namespace lumen::model::compress {
namespace {

constexpr int kSteps = 400;
constexpr float kRate = 0.03F;
constexpr float kZeta = 1.1F, kGamma = -0.1F;  // the rectified sigmoid's stretch
constexpr float kFirstBeta = 20, kLastBeta = 1.2F;
constexpr double kWarm = 0.2;  // part of the steps without the rounding penalty
constexpr float kPrice = 4;    // rounding penalty at the end, relative to the RMS gradient

struct Soft {
  const LearnedWeight& weight;
  CodeGrid grid;
  Neighbours near;
  std::vector<float> v, rounded, slope;
  Adam adam;

  Soft(run::Engine& engine, const LearnedWeight& w, std::span<const uint8_t> blob)
      : weight(w), grid(engine, w.format, w.rows, w.columns), adam(w.values.size()) {
    grid.read(blob);
    grid.find(w.values, &near);
    v.resize(w.values.size());
    rounded.resize(v.size());
    slope.resize(v.size());
    for (size_t i = 0; i < v.size(); ++i) v[i] = -std::log((kZeta - kGamma) / (near.share[i] - kGamma) - 1);
  }

  static float sigmoid(float x) { return 1 / (1 + std::exp(-x)); }
  static float height(float x) { return std::clamp(sigmoid(x) * (kZeta - kGamma) + kGamma, 0.0F, 1.0F); }

  void round_softly() {
    parallel_for(0, std::ssize(v), [&](int64_t i) {
      // Beyond the range both neighbours are its end.
      rounded[i] = near.low[i] + height(v[i]) * (near.up[i] - near.low[i]);
    });
  }
  void round() {
    parallel_for(0, std::ssize(v), [&](int64_t i) { rounded[i] = height(v[i]) >= 0.5F ? near.up[i] : near.low[i]; });
  }
  // `part`: fraction of the penalty, 0..1.
  void move(std::span<const float> gradient, float part, float beta, float rate) {
    double squares = 0;
    for (size_t i = 0; i < v.size(); ++i) {
      const double toward = double{gradient[i]} * (near.up[i] - near.low[i]);
      squares += toward * toward;
    }
    const float price = part * kPrice * std::sqrt(squares / std::max<size_t>(v.size(), 1));
    parallel_for(0, std::ssize(v), [&](int64_t i) {
      const float s = sigmoid(v[i]), h = s * (kZeta - kGamma) + kGamma;
      slope[i] = 0;
      if (!(near.up[i] > near.low[i])) return;
      // At either end the objective may pull a value back, but not further out.
      const float toward = gradient[i] * (near.up[i] - near.low[i]);
      const float clear = 2 * std::clamp(h, 0.0F, 1.0F) - 1;
      const float pull = -price * std::pow(std::abs(clear), beta - 1) * (clear < 0 ? -1.0F : 1.0F);
      if ((h <= 0 && toward + pull > 0) || (h >= 1 && toward + pull < 0)) return;
      slope[i] = (toward + pull) * s * (1 - s) * (kZeta - kGamma);
    });
    adam.step(slope, rate, v);
  }
};

}  // namespace

LearnedBlock learn_soft_rounding(run::Engine& engine, BlockObjective& objective, std::span<const LearnedWeight> weights,
                                 const LearnOptions& options, const LearnProgress& progress) {
  const int64_t steps = options.steps > 0 ? options.steps : kSteps;
  const float rate = options.rate > 0 ? options.rate : kRate;
  std::vector<std::unique_ptr<Soft>> soft;
  std::vector<std::vector<uint8_t>> plain;
  for (const LearnedWeight& w : weights) {
    plain.push_back(engine.encode(w.format, w.values.data(), w.rows, w.columns, w.importance));
    soft.push_back(std::make_unique<Soft>(engine, w, plain.back()));
  }
  BestBlock best(engine, objective, weights, options.windows, std::move(plain));
  WindowDraw draw(objective.windows(), options.windows, options.seed);
  std::vector<std::vector<float>> gradients;
  for (int64_t step = 0; step < steps; ++step) {
    for (size_t i = 0; i < soft.size(); ++i) {
      soft[i]->round_softly();
      objective.set(i, soft[i]->rounded);
    }
    objective.gradients(draw.next(), &gradients);
    const double gone = 1.0 * step / steps, cold = std::max(0.0, (gone - kWarm) / (1 - kWarm));
    const double beta = kLastBeta + (kFirstBeta - kLastBeta) * 0.5 * (1 + std::cos(std::numbers::pi * cold));
    for (size_t i = 0; i < soft.size(); ++i) soft[i]->move(gradients[i], cold, beta, rate);
    if (is_looked_at(step + 1, steps)) {
      for (size_t i = 0; i < soft.size(); ++i) {
        soft[i]->round();
        objective.set(i, soft[i]->rounded);
      }
      best.consider([&] {
        std::vector<std::vector<uint8_t>> blobs;
        for (const auto& s : soft) blobs.push_back(s->grid.store(s->rounded));
        return blobs;
      });
    }
    if (progress) progress(step + 1, steps);
  }
  return best.take();
}

}  // namespace lumen::model::compress
