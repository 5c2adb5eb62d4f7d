// Tiny models of every family with weights that no rewrite can pass by: norms and biases that differ from channel to
// channel; and what they compute, in f64 throughout.
#pragma once

#include <algorithm>
#include <cmath>

#include "graph/ir/eval.h"
#include "model/arch/checkpoint/read.h"
#include "model/arch/function.h"
#include "model/compress/equivalent_transform/equivalent_transform.h"
#include "tests/model/families/family_case.h"

namespace lumen::model::compress {

inline double drawn(uint32_t salt, uint64_t element) {
  return graph::uniform_random(77, salt, element);
}

inline arch::Model decoded_model(const arch::Model& model) {
  arch::Model out = model;
  for (auto& [name, w] : out.weights)
    if (!w.is_f32())
      w = arch::f32_weight(w.type.shape, engine().decode(w.type.element.format, w.bytes.data(), w.rows(), w.columns()));
  return out;
}

inline arch::Model uneven_model(const std::string& fixture) {
  arch::Model m = decoded_model(read_hf(test_library(), kFamilies / fixture));
  uint32_t salt = 1;
  for (auto& [name, w] : m.weights) {
    const arch::Parameter& p = *m.find(name);
    ++salt;
    if (!p.is_vector() || p.frozen) continue;
    std::vector<float> values(w.f32().begin(), w.f32().end());
    for (size_t i = 0; i < values.size(); ++i)
      values[i] = p.init == "ones" ? values[i] * static_cast<float>(0.5 + drawn(salt, i))
                                   : values[i] + static_cast<float>(0.1 * (drawn(salt, i) - 0.5));
    w = arch::f32_weight(w.type.shape, values);
  }
  return m;
}

// Logits of a text of 7 tokens.
inline std::vector<double> logits_of(const arch::Model& m) {
  std::map<std::string, graph::Tensor> inputs;
  const graph::Graph g = function_of(m, "forward");
  for (const auto& [name, w] : m.weights)
    if (g.find_input(name) >= 0) inputs[name] = f32_tensor(w);
  std::vector<double> tokens;
  for (int i = 0; i < 7; ++i) tokens.push_back((i * 7 + 3) % static_cast<int>(m.integer("vocab")));
  inputs["tokens"] = integers({1, 7}, tokens);
  return graph::eval(g, inputs, {.wide = true, .symbols = {}})[0].values;
}

// The largest difference, of the range of all.
inline double off(const std::vector<double>& a, const std::vector<double>& b) {
  const auto [low, high] = std::minmax_element(b.begin(), b.end());
  double most = 0;
  for (size_t i = 0; i < a.size(); ++i) most = std::max(most, std::abs(a[i] - b[i]));
  return std::isfinite(most) ? most / (*high - *low) : INFINITY;
}

// Rounding of changed weights to f32, through all layers.
inline constexpr double kSame = 2e-5, kOther = 1e-3;

// Names of weights whose numbers differ.
inline std::vector<std::string> changed_weights(const arch::Model& a, const arch::Model& b) {
  std::vector<std::string> names;
  for (const auto& [name, w] : a.weights)
    if (const auto other = b.weights.find(name); other != b.weights.end() && !(other->second.bytes == w.bytes))
      names.push_back(name);
  return names;
}

}  // namespace lumen::model::compress
