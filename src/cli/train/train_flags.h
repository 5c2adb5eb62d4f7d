// The flags of `lumen train`, what contradicts what, and the recipe they make. Proved by
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

// Flags win over the recipe; absent ones leave it as it is.
struct TrainFlags {
  std::string recipe, model, resume, format;
  std::string begin;  // a checkpoint whose adapter goes on; phases set it
  bool resume_given = false, print_config = false, plan = false, explain = false, bf16 = false, overwrite = false;
  bool changed_data = false, changed_recipe = false;
  int ranks_here = 1;                             // --ranks: how many processes this one starts
  std::shared_ptr<run::Communicator> ranks = {};  // those that this process is one of; null: it is alone
  std::optional<std::string> out;
  // Those that stand for one key of a recipe: "schedule.learning_rate" and the text that was given.
  std::map<std::string, std::string> values;
  std::map<std::string, double> objective_settings;

  bool has(const std::string& key) const { return values.contains(key); }
  std::string text(const std::string& key) const { return has(key) ? values.at(key) : std::string(); }
  std::optional<double> number(const std::string& key) const;
};

// Returns the option --resume, whose value may be left out.
CLI::Option* add_train_flags(CLI::App& app, TrainFlags& flags);

// Error (usage) that names both flags when two contradict each other.
void check_train_flags(const TrainFlags& flags);

// What the flags say, in place of what the recipe says.
void apply_flags(const model::Library& library, const TrainFlags& flags, model::Recipe& recipe);

// A recipe by name or from a file.
model::Recipe named_recipe(const model::Library& library, const std::string& name);

// The recipe a fresh run follows.
model::Recipe fresh_recipe(const model::Library& library, const TrainFlags& flags);

// The recipe a resumed run follows: the stored one. Error (usage) that names both values where a flag or a recipe given
// along contradicts it, unless changes were asked for; changes are noted. `--steps` may be more: the rates of the steps
// planned before stay, further steps run at the last rate.
model::Recipe resumed_recipe(const model::Library& library, const TrainFlags& flags, const model::Recipe& stored);

// How many tokens "bytes:N" asks for; nothing for other texts. Error when N is no such number.
std::optional<int64_t> byte_pair_tokens(const std::string& tokenizer);

}  // namespace lumen::cli
