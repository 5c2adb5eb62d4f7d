// Files that a training run leaves in its folder in addition to checkpoints: model.gguf, model-rounded.gguf where
// formats took part, hf/ where requested. For an adapter: adapter/ (in PEFT's layout) and adapter.gguf, and the merged
// model.gguf where it is shipped or requested. Whether all of it can be written is checked before the first step.
// Proved by tests/model/train/outputs_test.cpp.
#pragma once

#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "model/train/trainer/trainer.h"

namespace lumen::model::train {

// Error when an output file could not represent the family, the tokenizer or the recipe's output type. Writes nothing.
void check_outputs(const arch::Model& model, const recipe::Recipe& recipe);

// Error when the disk of `folder` has too little free space for the run's checkpoints and outputs. `kept` checkpoints
// exist already.
void require_room(const std::filesystem::path& folder, const arch::Model& model, const recipe::Recipe& recipe,
                  int64_t kept);

// Models and folders of an earlier run in `folder`.
std::vector<std::filesystem::path> earlier_outputs(const std::filesystem::path& folder);

// Error (usage) when outputs in `folder` would replace an input file (base/file/protected.h). A resumed run keeps the
// residual base it has written.
void refuse_outputs_over_inputs(const std::filesystem::path& folder, bool resumed = false);

// A file or folder that a run left.
struct Output {
  std::filesystem::path path;     // empty: it could not be written, and `what` is the reason
  std::string what;               // its type
  std::optional<double> kl = {};  // of a merged model: its divergence from the trained one, nats per token
  int64_t kl_tokens = 0;          // that this was measured over

  std::string divergence() const;  // "KL divergence ..", empty without
  std::string line() const;        // "PATH (TYPE; KL divergence ..)"
};

// Writes the outputs, and returns one or several for each. A merged model is first compared with the trained one on
// validation data: error (exit 5), and no file of it remains, when it differs by more than the recipe allows.
std::vector<Output> write_outputs(run::Engine& engine, Trainer& trainer, const std::filesystem::path& folder);

// Adds the outputs to the log in the run's folder, with the command that runs the model, and writes the report again.
// No effect where the folder has no log.
void log_outputs(const std::filesystem::path& folder, const Trainer& trainer, std::span<const Output> outputs);

}  // namespace lumen::model::train
