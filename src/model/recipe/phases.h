// A run in phases (continued pre-training, chats, rounding in the loop, ..): each is a run of its own with its own
// data, method, objective and schedule, in a folder of its own below the run's, and begins with what the one before it
// left. phases.json in the run's folder says which are done, so that a run that was killed goes on in the right phase
// with the right step. Proved by tests/model/recipe/phases_test.cpp and tests/cli/phases_check.py.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "model/arch/adapter/adapter.h"
#include "model/file/checkpoint.h"
#include "model/recipe/recipe.h"

namespace lumen::model {

// What a phase begins with.
enum class PhaseBegin {
  model,    // the weights the phase before it trained; the first: the run's model
  adapter,  // the adapter the phase before it trained goes on, beside the same model
  merged,   // the model with that adapter folded in, in floats
};
PhaseBegin phase_begin(const std::string& name);  // Error (usage) that lists the names

// The recipe of one phase: the whole one with what the phase says instead.
Recipe phase_recipe(const Recipe& whole, size_t phase);
// Paths of data and tokenizers that exist become absolute, so that a run can be resumed from anywhere.
void make_absolute(Recipe& whole);
// Error (usage) when a phase cannot begin with what the one before it leaves.
void check_phases(const Recipe& whole);

// "2-chat" below the run's folder.
std::filesystem::path phase_folder(const std::filesystem::path& run, const Recipe& whole, size_t phase);

// The adapter that a checkpoint holds. Error when it holds none.
Adapter adapter_of(const Model& model, const Checkpoint& checkpoint);

struct PhasesState {
  std::string recipe;  // the whole, as text (describe)
  std::string model;   // the run's, "" for fresh weights
  size_t done = 0;     // phases
};
void write_phases(const std::filesystem::path& run, const PhasesState& state);
// Nothing where the folder holds no run in phases. Error when its file is damaged.
std::optional<PhasesState> read_phases(const std::filesystem::path& run);

}  // namespace lumen::model
