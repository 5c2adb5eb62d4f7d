// A checkpoint's data besides tensors: the recipe, the model's family and config, its other files, and hashes of the
// data. They suffice to resume from the checkpoint alone. Proved by tests/model/recipe/record_test.cpp.
//
// May include: base, base/file, base/structured, model/arch, model/arch/adapter, model/arch/checkpoint,
// model/arch/family, model/data/examples, model/file, model/recipe, run/engine.
// Offers: lora_base.h, provenance.h.
#pragma once

#include "model/arch/model.h"
#include "model/data/examples/dataset.h"
#include "model/file/checkpoint.h"
#include "model/recipe/recipe.h"

namespace lumen::model::recipe {

// Adds the model (without weights) and the data to the checkpoint's content.
void record_run(const arch::Model& model, const std::vector<data::DataFile>& files, const Hash& tokens,
                file::CheckpointContent* content);

struct StoredRun {
  Recipe recipe;
  arch::Model model;  // with the saved weights, mapped from the checkpoint; for an adapter the base model's
  std::vector<data::DataFile> files;
  Hash tokens;  // Dataset::token_hash
};
// Error when the checkpoint is incomplete or its family is not in this library. The base model of an adapter is read
// from the recipe's `base`, or from `base` (lora_base.h); other checkpoints hold their model.
StoredRun read_run(const arch::LibraryRef& library, const file::Checkpoint& checkpoint, const std::string& base = "");

// One line for each difference between a run's recorded data files and the current ones; empty when there is none.
// Files are compared by size and content, not by name.
std::string data_changes(const std::vector<data::DataFile>& was, const std::vector<data::DataFile>& now);

// A value that differs from the checkpoint's.
struct RecipeChange {
  std::string key, was, now;
  // Changes the model itself: never allowed.
  bool of_model = false;
};
// Changes that affect training. Excluded are how often to evaluate and save, output types, and paths (file contents are
// compared elsewhere).
std::vector<RecipeChange> recipe_changes(const Recipe& was, const Recipe& now);

}  // namespace lumen::model::recipe
