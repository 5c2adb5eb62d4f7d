// A small model that rotations are learned for, a text, and its sites.
#pragma once

#include <gtest/gtest.h>

#include "model/calibrate/layer_run.h"
#include "model/compress/quantize.h"
#include "model/compress/rotate/rotate.h"
#include "tests/model/tiny.h"

namespace lumen::model::compress {

inline run::Engine& rotate_engine(int threads = 1) {
  static const std::string cache = (std::filesystem::temp_directory_path() / "lumen-test-cache").string();
  static run::Engine one(run::Engine::Options{.cache_folder = cache, .threads = 1, .machine = nullptr});
  static run::Engine two(run::Engine::Options{.cache_folder = cache, .threads = 2, .machine = nullptr});
  return threads == 1 ? one : two;
}

// Ready for rotations: norms folded, with channels of different sizes, and an output of its own.
inline arch::Model rotate_model() {
  const arch::FamilyRef family = test_library()->family("llama");
  arch::Model m = initialise(family,
                             family->config("", {{"vocab", 24},
                                                 {"hidden", 64},
                                                 {"layers", 2},
                                                 {"heads", 4},
                                                 {"kv_heads", 2},
                                                 {"head_dim", 16},
                                                 {"ffn", 64},
                                                 {"context", 16}}),
                             3);
  for (auto& [name, w] : m.weights) {
    std::vector<float> values(w.f32().begin(), w.f32().end());
    const bool vector = w.type.shape.size() == 1;
    for (size_t i = 0; i < values.size(); ++i) values[i] *= vector ? 0.2F + (i * 37 % 64) / 16.0F : 4;
    w = arch::f32_weight(w.type.shape, values);
  }
  untie(m);
  fold_norms(m, graph::scale_sites(transform_graph(m)));
  return m;
}

inline std::vector<graph::RotationSite> rotate_sites(const arch::Model& m) {
  const graph::Graph g = transform_graph(m);
  std::vector<graph::RotationSite> out = graph::value_rotations(g);
  out.push_back(graph::stream_rotation(g));
  return out;
}

// Drawn Hadamard matrices, as `lumen rewrite` begins with them.
inline void begin_rotations(RotatedWeights& w, uint32_t seed = 1) {
  for (size_t s = 0; s < w.spaces().size(); ++s)
    w.set(s, Rotation::hadamard(w.spaces()[s].width, seed + w.spaces()[s].block).matrix());
}

inline std::vector<text::TokenId> rotate_text(int64_t count, uint32_t state = 11) {
  std::vector<text::TokenId> out;
  for (int64_t i = 0; i < count; ++i) out.push_back(((state = state * 1664525 + 1013904223) >> 19) % 24);
  return out;
}

inline std::map<std::string, FormatRef> rotate_formats(const arch::Model& m, const std::string& format) {
  QuantizeOptions q;
  q.target = format;
  q.pure = true;
  std::map<std::string, FormatRef> out;
  for (const auto& [name, f] : choose_formats(m, q, nullptr))
    if (f->name == format) out[name] = f;
  return out;
}

}  // namespace lumen::model::compress
