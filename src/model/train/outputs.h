// What a training run leaves in its folder besides checkpoints: model.gguf, model-rounded.gguf where formats took part,
// hf/ where asked for. Whether all of it can be written is known before the first step. Proved by
// tests/model/outputs_test.cpp.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "model/train/trainer.h"

namespace lumen::model {

// Error when the family, the tokenizer or the recipe's output type leaves something that no file can hold. Nothing is
// written.
void check_outputs(const Model& model, const Recipe& recipe);

// Error when the disk of `folder` has less room than the run's checkpoints and outputs take. `kept` checkpoints are
// there already.
void require_room(const std::filesystem::path& folder, const Model& model, const Recipe& recipe, int64_t kept);

// Models and folders of an earlier run in `folder`.
std::vector<std::filesystem::path> earlier_outputs(const std::filesystem::path& folder);

// Writes them; returns a line for each, with its type.
std::vector<std::string> write_outputs(run::Engine& engine, Trainer& trainer, const std::filesystem::path& folder);

}  // namespace lumen::model
