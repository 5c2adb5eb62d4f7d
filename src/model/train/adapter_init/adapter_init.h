// Adapter initializations that change the base model: the residual base, without the adapter's initial part, is written
// and the adapter is trained on it. The given file or folder stays unchanged.
// pissa   A and B begin as the largest singular values and vectors of each weight, and the base keeps the rest:
// base' + scale B A = W, except for the rounding of base' to its format
// loftq   alternates: the base is the rounding of W - scale B A, and B A the best low-rank fit of the rounding error
// Proved by tests/model/train/adapter/adapter_init_test.cpp, and against peft by
// tests/model/arch/adapter/adapter_reference.py.
//
// May include: base, graph/transform, model/arch/adapter, model/arch/checkpoint, model/compress, model/file,
// model/linear, model/recipe, model/recipe/record, model/train/method, run/engine.
#pragma once

#include <filesystem>
#include <functional>
#include <optional>
#include <string>

#include "graph/transform/low_rank.h"
#include "model/arch/adapter/adapter.h"
#include "model/recipe/recipe.h"
#include "run/engine/engine.h"

namespace lumen::model::train {

inline constexpr const char* kInitialAdapter = "beginning.safetensors";  // A and B before the first step

// The files that a run in this folder has written: base.gguf or the folder base, and the initial adapters. Empty
// where there is no such run.
std::vector<std::filesystem::path> residual_base_files(const std::filesystem::path& run);
// The base among a run's files.
std::optional<std::filesystem::path> residual_base(const std::filesystem::path& run);
// A path of the given kind (folder or file) if such a folder can store every format; else base.gguf.
std::filesystem::path residual_base_path(const std::filesystem::path& run, const arch::Model& model,
                                         const recipe::Recipe& recipe);

// The given model with the types of the base that will be written, which training then holds. Changed weights have no
// bytes.
arch::Model residual_base_outline(const arch::Model& model, const recipe::Recipe& recipe);
// Host memory needed to write the base, before training allocates anything.
run::MemoryNeeds residual_base_needs(const arch::Model& model, const recipe::Recipe& recipe);

struct ResidualTensor {
  std::string name, format;
  double error = 0, plain = 0;  // |W - base' - scale B A| / |W|, and the same for rounding W alone
};
// Writes the base to residual_base_path(), and the initial adapter. Error when a format has no encoder, or its blocks
// do not divide the rows.
std::vector<ResidualTensor> write_residual_base(run::Engine& engine, const arch::Model& model,
                                                const recipe::Recipe& recipe, const std::filesystem::path& run,
                                                const std::function<void(const ResidualTensor&)>& progress = {});
std::string residual_text(const std::vector<ResidualTensor>& tensors, const recipe::AdapterSettings& settings);

struct InitialAdapter {
  arch::Adapter adapter;
  std::string base;  // the given file or folder
};
// Error when the file is damaged or does not fit the model.
InitialAdapter read_initial_adapter(const arch::Model& base, const std::vector<graph::LowRank>& changes,
                                    const std::filesystem::path& run);

// An adapter with the same effect on the given model, of twice the rank: B A - B0 A0. nullopt where the base was
// quantized when written (formats that are not floats), or is a quantization residual (loftq).
std::optional<arch::Adapter> adapter_for_given_base(const arch::Model& base, const arch::Adapter& trained,
                                                    const arch::Adapter& beginning,
                                                    const recipe::AdapterSettings& settings);

}  // namespace lumen::model::train
