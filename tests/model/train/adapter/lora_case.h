// Models, a text and a recipe for tests that train adapters.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "model/compress/quantize.h"
#include "model/train/trainer/trainer.h"
#include "tests/model/tiny.h"
#include "tests/model/train/training_case.h"

namespace lumen::model::train {

inline recipe::AdapterSettings adapter_settings() {
  recipe::AdapterSettings settings;
  settings.method = "lora";
  settings.rank = 4;
  settings.alpha = 8;
  return settings;
}

inline recipe::Recipe adapter_recipe() {
  recipe::Recipe r = small_recipe();
  r.batch = 2;
  r.length = 8;
  r.adapter = adapter_settings();
  return r;
}

// Fresh weights of some config, and a text to train on.
struct AdapterCase {
  arch::Model model;
  std::shared_ptr<data::Dataset> data;
  AdapterCase(const std::string& family_name, graph::Config config) {
    const text::Tokenizer tokenizer = text::Tokenizer::characters(training_text());
    data = std::make_shared<data::Dataset>(data::Dataset::from_text(training_text(), tokenizer));
    const arch::FamilyRef family = test_library()->family(family_name);
    config["vocab"] = static_cast<double>(tokenizer.size());
    config["context"] = 16;
    model = initialise(family, family->config("", config), 3);
    model.tokenizer = tokenizer;
  }
};

// Rows as wide as the blocks of every format.
struct WideCase : AdapterCase {
  WideCase() : AdapterCase("llama", {{"hidden", 256}, {"layers", 1}, {"heads", 4}, {"kv_heads", 2}, {"ffn", 256}}) {}
};

struct MixtureCase : AdapterCase {
  MixtureCase()
      : AdapterCase("mixtral", {{"hidden", 32},
                                {"layers", 2},
                                {"heads", 4},
                                {"kv_heads", 2},
                                {"head_dim", 8},
                                {"ffn", 64},
                                {"experts", 4}}) {}
};

// Every matrix in the format.
inline arch::Model packed_model(run::Engine& engine, const arch::Model& model, const std::string& format) {
  const FormatRef f = test_library()->formats().get(format);
  arch::Model out = model;
  for (const arch::Parameter& p : model.parameters) {
    arch::Weight& w = out.weights.at(p.name);
    if (p.is_vector() || p.frozen) continue;
    w.bytes = engine.encode(f, model.weights.at(p.name).f32().data(), w.rows(), w.columns());
    w.type.element = {Scalar::f32, f};
  }
  return out;
}

inline std::map<std::string, std::vector<uint8_t>> bytes_of(const arch::Adapter& adapter) {
  std::map<std::string, std::vector<uint8_t>> out;
  const auto put = [&](const std::string& name, const arch::Weight& w) {
    out[name] = {w.bytes.begin(), w.bytes.end()};
  };
  for (const auto& [name, part] : adapter.parts) {
    put(name + " a", part.a);
    put(name + " b", part.b);
    if (part.magnitude) put(name + " magnitude", *part.magnitude);
  }
  return out;
}

}  // namespace lumen::model::train
