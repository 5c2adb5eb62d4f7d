// A model whose layers are wide enough for every format, a text for it, and what its layers hand on.
#pragma once

#include "model/calibrate/layer_run.h"
#include "model/compress/reconstruction/reconstruction.h"
#include "tests/model/tiny.h"

namespace lumen::model::compress {

inline std::string reconstruction_cache() {
  return (std::filesystem::temp_directory_path() / "lumen-test-cache").string();
}
inline run::Engine& reconstruction_engine(int threads = 1) {
  static run::Engine one(
      run::Engine::Options{.cache_folder = reconstruction_cache(), .threads = 1, .machine = nullptr});
  static run::Engine two(
      run::Engine::Options{.cache_folder = reconstruction_cache(), .threads = 2, .machine = nullptr});
  return threads == 1 ? one : two;
}

// Matrices are 256 columns wide, or 512, so that blocks of 256 fit.
inline arch::Model reconstruction_model() {
  const arch::FamilyRef family = test_library()->family("llama");
  arch::Model m = initialise(family,
                             family->config("", {{"vocab", 40},
                                                 {"hidden", 256},
                                                 {"layers", 1},
                                                 {"heads", 8},
                                                 {"kv_heads", 2},
                                                 {"head_dim", 32},
                                                 {"ffn", 256},
                                                 {"context", 16}}),
                             1);
  // Real layers read channels of different sizes.
  for (auto& [name, w] : m.weights) {
    if (w.type.shape.size() != 1) continue;
    std::vector<float> values(w.f32().begin(), w.f32().end());
    for (size_t i = 0; i < values.size(); ++i) values[i] *= 0.2F + static_cast<float>((i * 37) % 64) / 16;
    w = arch::f32_weight(w.type.shape, values);
  }
  return m;
}

inline std::vector<text::TokenId> reconstruction_text(int64_t count, uint32_t seed) {
  std::vector<text::TokenId> out;
  uint32_t x = seed;
  for (int64_t i = 0; i < count; ++i) {
    x = x * 1664525 + 1013904223;
    out.push_back(static_cast<text::TokenId>((x >> 16) % 40));
  }
  return out;
}

// The first layer of a model over a text, as BlockObjective sees it.
struct FirstLayer {
  const arch::Model& model;
  calibrate::LayerRun run;
  calibrate::CarriedValues rounded{{}, "rounded"}, truth{{}, "true"};
  std::vector<std::string> learned;
  std::vector<std::vector<float>> values;

  FirstLayer(run::Engine& engine, const arch::Model& m, const std::vector<text::TokenId>& text)
      : model(m), run(engine, m, text, {.length = 8, .batch = 4}) {
    run.run(0, weight(), nullptr, &truth);
    for (const std::string& name : run.part(0).parameters) {
      const arch::Weight& w = m.weights.at(name);
      if (graph::layer_of(name) != 0 || w.type.shape.size() != 2) continue;
      learned.push_back(name);
      values.emplace_back(w.f32().begin(), w.f32().end());
    }
  }
  calibrate::LayerRun::WeightOf weight() const {
    return [this](const std::string& name) { return model.weights.at(name).f32(); };
  }
  BlockObjective objective(run::Engine& engine) { return {engine, run, 0, learned, weight(), &rounded, &truth}; }
  std::vector<LearnedWeight> weights(const FormatRef& f) const {
    std::vector<LearnedWeight> out;
    for (size_t i = 0; i < learned.size(); ++i) {
      const graph::Shape& shape = model.weights.at(learned[i]).type.shape;
      out.push_back({learned[i], f, shape[0].number(), shape[1].number(), values[i], {}});
    }
    return out;
  }
  // The objective of these blobs over all windows.
  double loss(run::Engine& engine, const FormatRef& f, const std::vector<std::vector<uint8_t>>& blobs) {
    BlockObjective o = objective(engine);
    const std::vector<LearnedWeight> w = weights(f);
    for (size_t i = 0; i < w.size(); ++i) o.set(i, engine.decode(f, blobs[i].data(), w[i].rows, w[i].columns));
    return o.loss_of_all(4);
  }
};

inline FormatRef reconstruction_format(const std::string& name) {
  return test_library()->formats().get(name);
}

}  // namespace lumen::model::compress
