// What a checkpoint says of its run besides tensors: the recipe, the model's kind and what its files carried along, the
// data by content. Enough to go on from the checkpoint alone. Proved by tests/model/recipe/record_test.cpp.
//
// May include: base, base/file, base/structured, model/arch, model/arch/adapter, model/arch/checkpoint,
// model/arch/family, model/data/examples, model/file, model/recipe, run/engine.
// Offers: lora_base.h, provenance.h.
#pragma once

#include "model/arch/model.h"
#include "model/data/examples/dataset.h"
#include "model/file/checkpoint.h"
#include "model/recipe/recipe.h"

namespace lumen::model {

// Adds the model (without weights) and the data to what is saved.
void record_run(const Model& model, const std::vector<DataFile>& files, const Hash& tokens, CheckpointContent* content);

struct StoredRun {
  Recipe recipe;
  Model model;  // weights as they were saved, where they lie in the checkpoint; those of an adapter's model
  std::vector<DataFile> files;
  Hash tokens;  // Dataset::token_hash
};
// Error when the checkpoint lacks something or belongs to a family this library does not have. The model of an adapter
// is read from the recipe's `base`, or from `base` (lora_base.h); other checkpoints hold theirs.
StoredRun read_run(const LibraryRef& library, const Checkpoint& checkpoint, const std::string& base = "");

// One line for each difference between the files a run was trained on and those there are now; empty when none. Files
// are known by size and content, not by name.
std::string data_changes(const std::vector<DataFile>& was, const std::vector<DataFile>& now);

// A value that differs from the checkpoint's.
struct RecipeChange {
  std::string key, was, now;
  // The model would be another one: never allowed.
  bool of_model = false;
};
// Differences that change what is trained. How often it is evaluated and saved, what is written at the end, and names
// of files (their content is compared elsewhere) are no differences.
std::vector<RecipeChange> recipe_changes(const Recipe& was, const Recipe& now);

}  // namespace lumen::model
