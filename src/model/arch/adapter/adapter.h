// Adapters: small changes of a model's weights, W + scale * B A, as files keep them. Two kinds of files: a folder of
// adapter_config.json and adapter_model.safetensors (names and row orders of Hugging Face folders), and GGUF files of
// the type "adapter". The weights themselves are never touched: infer/session/session.h computes beside them;
// compress/merge.h folds them in, and adapter_write.h writes such files. Folders may hold
// whole weights and biases as well, which stand in place of the model's (or beside one that the model uses twice).
// Hostile files: keys (models/adapters.toml), names, shapes and pairs are checked against the model before anything is
// computed. Proved by
// tests/model/arch/adapter/adapter_test.cpp.
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

namespace lumen::model {

// The files of a folder.
inline constexpr const char* kAdapterConfig = "adapter_config.json";
inline constexpr const char* kAdapterWeights = "adapter_model.safetensors";

// W + scale * B A of one parameter; with magnitudes (DoRA) each of its rows, an embedding's columns, is then stretched
// to the norm given.
struct AdapterPart {
  Weight a;  // f32 [rank, K]; of an embedding [N, rank]; of stacked matrices [E, rank, K]
  Weight b;  // f32 [N, rank]; of an embedding [K, rank]; of stacked matrices [E, N, rank]
  double scale = 1;
  std::optional<Weight> magnitude = {};  // f32 [N]; of an embedding [K]; of stacked matrices [E, N]
  int64_t rank() const { return b.columns(); }
};

struct Adapter {
  std::string name;                          // the file's
  bool by_root = false;                      // files give scale * sqrt(rank), not scale * rank (rsLoRA)
  std::map<std::string, AdapterPart> parts;  // by parameter
  std::map<std::string, Weight> whole;       // by parameter: those that are not what the model has
  graph::Config config;                      // keys that are not what the model has: its vocabulary, that it has biases
};

// An adapter and how much of it is wanted: 1 is as it was trained.
struct ScaledAdapter {
  Adapter adapter;
  double scale = 1;
};
// Error when it has whole weights or magnitudes, which have no scale, and another than 1 is wanted.
void require_scale(const ScaledAdapter& adapter);

// The model with the whole weights of adapters in place of its own, and their values of its config. An output that is
// its embedding becomes a weight of its own where an adapter changes one of the two. Error where two adapters differ
// about a weight, or were made for models of different vocabularies.
Model with_whole_weights(const Model& model, std::span<const Adapter* const> adapters);

// Whether a parameter's rows are read by number, not multiplied.
bool is_looked_up(const Parameter& p);

// A folder, its adapter_model.safetensors, or a GGUF file. Error when it is none, or does not fit the model.
Adapter read_adapter(const Model& model, const std::filesystem::path& path);

}  // namespace lumen::model
