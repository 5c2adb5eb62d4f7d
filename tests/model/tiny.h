// A model small enough for the oracle, and inputs for it.
#pragma once

#include <gtest/gtest.h>

#include <filesystem>
#include <string>

#include "graph/ir/eval.h"
#include "model/arch/model.h"
#include "run/engine/engine.h"

namespace lumen::model {

inline arch::LibraryRef test_library() {
  static const arch::LibraryRef library = arch::Library::builtin();
  return library;
}

// Two threads, and kernels kept between runs of the tests.
inline run::Engine& engine() {
  static run::Engine e(
      run::Engine::Options{.cache_folder = (std::filesystem::temp_directory_path() / "lumen-test-cache").string(),
                           .threads = 2,
                           .machine = nullptr});
  return e;
}

// Two layers, grouped queries, nothing a multiple of anything else.
inline graph::Config tiny_config(bool tied = false) {
  return test_library()->family("llama")->config("", {{"vocab", 11},
                                                      {"hidden", 12},
                                                      {"layers", 2},
                                                      {"heads", 4},
                                                      {"kv_heads", 2},
                                                      {"head_dim", 4},
                                                      {"ffn", 20},
                                                      {"context", 16},
                                                      {"tied", tied ? 1.0 : 0.0}});
}

inline arch::Model tiny_model(uint32_t seed = 1, bool tied = false) {
  arch::Model m = initialise(test_library()->family("llama"), tiny_config(tied), seed);
  // Larger weights than a real start, so that no gradient is negligible.
  for (auto& [name, w] : m.weights) {
    std::vector<float> values(w.f32().begin(), w.f32().end());
    for (size_t i = 0; i < values.size() && !m.find(name)->frozen; ++i) {
      if (m.find(name)->init != "ones")
        values[i] *= 15;
      else
        values[i] += 0.1F * static_cast<float>(i % 3);
    }
    w = arch::f32_weight(w.type.shape, values);
  }
  return m;
}

inline graph::Tensor f32_tensor(const arch::Weight& w) {
  graph::Tensor t;
  t.type = w.type;
  t.values.assign(w.f32().begin(), w.f32().end());
  return t;
}

inline graph::Tensor number(double x, Scalar type = Scalar::f32) {
  graph::Tensor t;
  t.type = {{}, {type, nullptr}};
  t.values = {x};
  return t;
}

inline graph::Tensor integers(graph::Shape shape, std::vector<double> values) {
  graph::Tensor t;
  t.type = {std::move(shape), {Scalar::i32, nullptr}};
  t.values = std::move(values);
  return t;
}

// Weights as inputs, and tokens and targets of a batch, B x T, a fixed pattern.
inline std::map<std::string, graph::Tensor> tiny_inputs(const arch::Model& m, int64_t batch, int64_t length) {
  std::map<std::string, graph::Tensor> inputs;
  for (const auto& [name, w] : m.weights) inputs[name] = f32_tensor(w);
  std::vector<double> tokens, targets;
  for (int64_t i = 0; i < batch * length; ++i) {
    tokens.push_back(static_cast<double>((i * 7 + 3) % 11));
    targets.push_back(static_cast<double>((i * 5 + 1) % 11));
  }
  inputs["tokens"] = integers({batch, length}, tokens);
  inputs["targets"] = integers({batch, length}, targets);
  return inputs;
}

// A folder that is gone when the test ends.
class TestFolder {
 public:
  TestFolder() {
    std::string name = (std::filesystem::temp_directory_path() / "lumen-test-XXXXXX").string();
    path_ = mkdtemp(name.data());
  }
  TestFolder(const TestFolder&) = delete;
  TestFolder& operator=(const TestFolder&) = delete;
  ~TestFolder() { std::filesystem::remove_all(path_); }
  std::filesystem::path operator/(const std::string& name) const { return path_ / name; }
  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

}  // namespace lumen::model
