// What a training run leaves in its folder besides checkpoints: model.gguf, model-rounded.gguf where formats took part,
// hf/ where asked for. Of an adapter adapter/ (as PEFT has it) and adapter.gguf, and the merged
// model.gguf where it is shipped or asked for. Whether all of it can be written is known before the first step. Proved
// by tests/model/train/outputs_test.cpp.
#pragma once

#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "model/train/trainer/trainer.h"

namespace lumen::model {

// Error when the family, the tokenizer or the recipe's output type leaves something that no file can hold. Nothing is
// written.
void check_outputs(const Model& model, const Recipe& recipe);

// Error when the disk of `folder` has less room than the run's checkpoints and outputs take. `kept` checkpoints are
// there already.
void require_room(const std::filesystem::path& folder, const Model& model, const Recipe& recipe, int64_t kept);

// Models and folders of an earlier run in `folder`.
std::vector<std::filesystem::path> earlier_outputs(const std::filesystem::path& folder);

// Error (usage) when a file that is read (base/file/protected.h) is one that outputs in `folder` would replace. A run
// that is resumed keeps the base it has rewritten.
void refuse_outputs_over_inputs(const std::filesystem::path& folder, bool resumed = false);

// Writes them; returns a line for each, with its type. A merged model is compared with what was trained over the
// validation data first: error (exit 5), and nothing of it is left, when it is further away than the recipe allows.
std::vector<std::string> write_outputs(run::Engine& engine, Trainer& trainer, const std::filesystem::path& folder);

}  // namespace lumen::model
