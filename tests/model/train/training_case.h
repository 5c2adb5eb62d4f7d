// A text, a recipe and engines for tests that train small models.
#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "model/train/trainer/trainer.h"
#include "run/engine/engine.h"

namespace lumen::model::train {

inline std::string training_text() {
  std::string t;
  for (int i = 0; i < 400; ++i) t += i % 3 == 0 ? "the cat sat on the mat. " : "a dog ran to the cat. ";
  return t;
}

inline run::Engine make_engine(int threads) {
  return run::Engine(
      run::Engine::Options{.cache_folder = (std::filesystem::temp_directory_path() / "lumen-test-cache").string(),
                           .threads = threads,
                           .machine = nullptr});
}

inline recipe::Recipe small_recipe() {
  recipe::Recipe r;
  r.batch = 4;
  r.length = 16;
  r.seed = 3;
  r.schedule = {.shape = recipe::Schedule::Shape::cosine, .peak = 1e-2, .floor = 1e-3, .warmup = 4, .steps = 40};
  r.evaluate_every = 0;
  r.keep = 0;
  return r;
}

inline std::map<std::string, std::vector<uint8_t>> weights_of(const Trainer& t) {
  std::map<std::string, std::vector<uint8_t>> out;
  for (const auto& [name, w] : t.model().weights) out[name] = {w.bytes.begin(), w.bytes.end()};
  return out;
}

}  // namespace lumen::model::train
