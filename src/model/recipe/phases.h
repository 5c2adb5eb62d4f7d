// A run in phases (continued pre-training, chats, quantization-aware training, ..): each phase is a run of its own with
// its own data, method, objective and schedule, in a subfolder of the run's folder, and starts from the result of the
// previous phase. phases.json in the run's folder records which are done, so that a killed run resumes in the right
// phase and step. Proved by tests/model/recipe/phases_test.cpp and tests/cli/phases_check.py.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "model/arch/adapter/adapter.h"
#include "model/file/checkpoint.h"
#include "model/recipe/recipe.h"

namespace lumen::model::recipe {

// The starting point of a phase.
enum class PhaseBegin {
  model,    // the weights trained by the previous phase; for the first phase the run's model
  adapter,  // continues training the previous phase's adapter, on the same base model
  merged,   // the base model with that adapter merged, in floats
};
PhaseBegin phase_begin(const std::string& name);  // Error (usage) that lists the names

// The recipe of one phase: the run's recipe with the phase's values in their place.
Recipe phase_recipe(const Recipe& whole, size_t phase);
// Makes paths of existing data and tokenizers absolute, so that a run can be resumed from any working directory.
void make_absolute(Recipe& whole);
// Error (usage) when a phase cannot start from the result of the previous one.
void check_phases(const Recipe& whole);

// "2-chat" below the run's folder.
std::filesystem::path phase_folder(const std::filesystem::path& run, const Recipe& whole, size_t phase);

// The adapter stored in a checkpoint. Error when it holds none.
arch::Adapter adapter_of(const arch::Model& model, const file::Checkpoint& checkpoint);

struct PhasesState {
  std::string recipe;  // the run's recipe, as text (describe)
  std::string model;   // the run's model, "" for fresh weights
  size_t done = 0;     // finished phases
};
void write_phases(const std::filesystem::path& run, const PhasesState& state);
// nullopt where the folder holds no run in phases. Error when phases.json is malformed.
std::optional<PhasesState> read_phases(const std::filesystem::path& run);

}  // namespace lumen::model::recipe
