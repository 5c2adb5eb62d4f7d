// Adapter initializations that change the base model, as an explicit rewrite: a new base is written, the adapter is
// trained on that, and the given file or folder stays unchanged.
// pissa   A and B begin as the largest singular values and vectors of each weight, and the base keeps the rest:
// base' + scale B A = W, except for the rounding of base' to its format
// loftq   alternates: the base is the rounding of W - scale B A, and B A the best low-rank fit of the rounding error
// Proved by tests/model/train/adapter/rewrite_test.cpp, and against peft by
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

namespace lumen::model {

inline constexpr const char* kBeginning = "beginning.safetensors";  // A and B before the first step

// The files that a run in this folder has rewritten: base.gguf or the folder base, and the initial adapters. Empty
// where there is no such run.
std::vector<std::filesystem::path> rewritten_files(const std::filesystem::path& run);
// The base among a run's files.
std::optional<std::filesystem::path> rewritten_base(const std::filesystem::path& run);
// A path of the given kind (folder or file) if such a folder can store every format; else base.gguf.
std::filesystem::path rewritten_path(const std::filesystem::path& run, const Model& model, const Recipe& recipe);

// The given model with the types of the base that will be written, which training then holds. Rewritten weights have no
// bytes.
Model rewritten_outline(const Model& model, const Recipe& recipe);
// Host memory needed for rewriting, before training allocates anything.
run::MemoryNeeds rewriting_needs(const Model& model, const Recipe& recipe);

struct RewrittenTensor {
  std::string name, format;
  double error = 0, plain = 0;  // |W - base' - scale B A| / |W|, and the same for rounding W alone
};
// Writes the base to rewritten_path(), and the initial adapter. Error when a format has no encoder, or its blocks do
// not divide the rows.
std::vector<RewrittenTensor> rewrite_base(run::Engine& engine, const Model& model, const Recipe& recipe,
                                          const std::filesystem::path& run,
                                          const std::function<void(const RewrittenTensor&)>& progress = {});
std::string rewrite_text(const std::vector<RewrittenTensor>& tensors, const AdapterSettings& settings);

struct Beginning {
  Adapter adapter;
  std::string base;  // the given file or folder
};
// Error when the file is damaged or does not fit the model.
Beginning read_beginning(const Model& base, const std::vector<graph::LowRank>& changes,
                         const std::filesystem::path& run);

// An adapter with the same effect on the given model, of twice the rank: B A - B0 A0. nullopt where the base was
// rounded when rewritten (formats that are not floats), or is a quantization residual (loftq).
std::optional<Adapter> beside_given(const Model& base, const Adapter& trained, const Adapter& beginning,
                                    const AdapterSettings& settings);

}  // namespace lumen::model
