// LoRA adapters: low-rank updates of a model's weights, W + scale * B A, in files of two kinds: a folder with
// adapter_config.json and adapter_model.safetensors (names and row orders of Hugging Face), and GGUF files of the type
// "adapter". The base weights stay unchanged: infer/session/session.h computes the update separately, compress/merge.h
// merges it, and adapter_write.h writes such files. Folders may also hold full weights and biases, which replace the
// model's (or untie a weight that the model uses twice). Hostile files: keys (models/adapters.toml), names, shapes and
// pairs are checked against the model before any computation. Proved by tests/model/arch/adapter/adapter_test.cpp.
//
// May include: base, base/file, base/structured, graph/transform, model/arch, model/arch/checkpoint, model/file,
// model/text/pattern, number/codec, run/engine.
// Offers: adapter_sets.h, adapter_stack.h, adapter_sum.h, adapter_write.h.
#pragma once

#include <filesystem>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "model/arch/model.h"

namespace lumen::model::arch {

// The files of a folder.
inline constexpr const char* kAdapterConfig = "adapter_config.json";
inline constexpr const char* kAdapterWeights = "adapter_model.safetensors";

// W + scale * B A of one parameter; with magnitudes (DoRA) each row (of an embedding: column) is then rescaled to the
// given norm.
struct AdapterPart {
  Weight a;  // f32 [rank, K]; of an embedding [N, rank]; of stacked matrices [E, rank, K]
  Weight b;  // f32 [N, rank]; of an embedding [K, rank]; of stacked matrices [E, N, rank]
  double scale = 1;
  std::optional<Weight> magnitude = {};  // f32 [N]; of an embedding [K]; of stacked matrices [E, N]
  int64_t rank() const { return b.columns(); }
};

struct Adapter {
  std::string name;                          // of the file
  bool by_root = false;                      // files give scale * sqrt(rank), not scale * rank (rsLoRA)
  std::map<std::string, AdapterPart> parts;  // by parameter
  std::map<std::string, Weight> whole;       // by parameter: full weights that differ from the model's
  graph::Config config;                      // keys that differ from the model's: vocabulary size, use of biases
};

// An adapter and its strength: 1 is as trained.
struct ScaledAdapter {
  Adapter adapter;
  double scale = 1;
};
// Error when the adapter has full weights or magnitudes, which cannot be scaled, and the scale is not 1.
void require_scale(const ScaledAdapter& adapter);

// The model with the adapters' full weights in place of its own, and their config values. A tied output becomes a
// separate weight where an adapter changes only one of output and embedding. Error where two adapters have different
// values for a weight, or were made for different vocabularies.
Model with_whole_weights(const Model& model, std::span<const Adapter* const> adapters);

// Whether a parameter is a lookup table (embedding) and not a matrix of a product.
bool is_looked_up(const Parameter& p);

// Reads a folder, its adapter_model.safetensors, or a GGUF file. Error when it is no adapter, or does not fit the
// model.
Adapter read_adapter(const Model& model, const std::filesystem::path& path);

}  // namespace lumen::model::arch
