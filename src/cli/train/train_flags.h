// The options of `lumen train`, the checks for contradictions, and the resulting recipe. Proved by
// tests/cli/train_flags_test.cpp.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "model/arch/family/family.h"
#include "model/recipe/record/record.h"
#include "run/ranks/ranks.h"

namespace lumen::cli {

// Options override the recipe; an absent option leaves it unchanged.
struct TrainFlags {
  std::string recipe, model, resume, format;
  std::string begin;  // a checkpoint whose adapter is trained further; set by phases
  bool resume_given = false, print_config = false, plan = false, explain = false, bf16 = false, overwrite = false;
  bool changed_data = false, changed_recipe = false;
  int ranks_here = 1;                             // --ranks: processes to start
  std::shared_ptr<run::Communicator> ranks = {};  // the communicator of this process; null: a single process
  std::optional<std::string> out;
  // Values of options that set one recipe key each: "schedule.learning_rate" and the given text.
  std::map<std::string, std::string> values;
  std::map<std::string, double> objective_settings;

  bool has(const std::string& key) const;  // of a key that recipes have
  std::string text(const std::string& key) const { return has(key) ? values.at(key) : std::string(); }
  std::optional<double> number(const std::string& key) const;
};

// Returns the option --resume, whose value is optional.
CLI::Option* add_train_flags(CLI::App& app, TrainFlags& flags);

// Error (usage) that names both flags when two contradict each other.
void check_train_flags(const TrainFlags& flags);

// Applies the options on top of the recipe.
void apply_flags(const model::arch::Library& library, const TrainFlags& flags, model::recipe::Recipe& recipe);

// A recipe by name or from a file.
model::recipe::Recipe named_recipe(const model::arch::Library& library, const std::string& name);

// The recipe of a new run.
model::recipe::Recipe fresh_recipe(const model::arch::Library& library, const TrainFlags& flags);

// The recipe of a resumed run: the stored one. Error (usage) that names both values where an option or a given recipe
// contradicts it, unless changes were allowed; changes are noted. `--steps` may be larger: the rates of the originally
// planned steps stay, and further steps use the last rate.
model::recipe::Recipe resumed_recipe(const model::arch::Library& library, const TrainFlags& flags,
                                     const model::recipe::Recipe& stored);

// The number N of "bytes:N"; nullopt for other tokenizers. Error when N is no valid number.
std::optional<int64_t> byte_pair_tokens(const std::string& tokenizer);

}  // namespace lumen::cli
