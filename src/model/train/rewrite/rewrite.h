// Beginnings of adapters that change the model beside them, as a stated rewrite: a new base is written, the adapter is
// trained beside that, and the file or folder given stays as it is.
// pissa   A and B begin as the largest singular values and vectors of each weight, and the base keeps the rest:
// base' + scale B A = W, but for the rounding of base' to what it is held in
// loftq   in turns, the base is what W - scale B A rounds to, and B A the best of its rank for what rounding has lost
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

// What a run in this folder has rewritten: base.gguf or the folder base, and what adapters began with. Empty where
// there is no such run.
std::vector<std::filesystem::path> rewritten_files(const std::filesystem::path& run);
// The base among what a run wrote.
std::optional<std::filesystem::path> rewritten_base(const std::filesystem::path& run);
// The kind of file that was given, where each format has a place in such a folder; else base.gguf.
std::filesystem::path rewritten_path(const std::filesystem::path& run, const Model& model, const Recipe& recipe);

// The given model with the types of the base that will be written: what training then holds. What is written anew has
// no bytes.
Model rewritten_outline(const Model& model, const Recipe& recipe);
// What the host needs while it is written, before training takes anything.
run::MemoryNeeds rewriting_needs(const Model& model, const Recipe& recipe);

struct RewrittenTensor {
  std::string name, format;
  double error = 0, plain = 0;  // |W - base' - scale B A| / |W|, and the same of rounding W to the format alone
};
// Writes both: the base to rewritten_path(), and what the adapter begins with. Error when a format has no encoder, or
// rows do not divide into its blocks.
std::vector<RewrittenTensor> rewrite_base(run::Engine& engine, const Model& model, const Recipe& recipe,
                                          const std::filesystem::path& run,
                                          const std::function<void(const RewrittenTensor&)>& progress = {});
std::string rewrite_text(const std::vector<RewrittenTensor>& tensors, const AdapterSettings& settings);

struct Beginning {
  Adapter adapter;
  std::string base;  // the file or folder that was given
};
// Error when the file is damaged or does not fit the model.
Beginning read_beginning(const Model& base, const std::vector<graph::LowRank>& changes,
                         const std::filesystem::path& run);

// An adapter that does the same beside the model as it was given, with twice the rank: B A - B0 A0. Nothing where the
// base was rounded when it was rewritten (formats that are no floats), or is what rounding left (loftq).
std::optional<Adapter> beside_given(const Model& base, const Adapter& trained, const Adapter& beginning,
                                    const AdapterSettings& settings);

}  // namespace lumen::model
