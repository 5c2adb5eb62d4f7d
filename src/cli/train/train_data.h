// The data of `lumen train`: plain text as windows, or rows of files (chats, pairs, documents) as examples. Proved by
// tests/cli/train_data_test.cpp.
#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/sealed/sealed.h"
#include "cli/command.h"
#include "cli/train/train_flags.h"
#include "model/arch/model.h"
#include "model/data/examples/dataset.h"
#include "model/data/examples/example_batches.h"
#include "model/recipe/recipe.h"

namespace lumen::cli {

struct TrainingData {
  // Documents from which windows are sampled; nullopt when training on rows.
  std::optional<model::data::Documents> documents;
  std::vector<std::vector<std::filesystem::path>> sets, validation;
  std::optional<model::data::Example::Kind> kind;  // the kind of the first rows
  model::data::ReadOptions options;

  bool has_rows() const { return !documents; }
  bool has_chats() const { return has_rows() && kind != model::data::Example::Kind::text; }
  // All text, for training a tokenizer; rows without text are counted in `report`. `chat_template`: the recipe's.
  std::string all_text(const std::string& chat_template, model::data::RowReport* report) const;
};

// Examines the paths in the recipe's [data] and prints a note on the result.
TrainingData find_training_data(const model::recipe::Recipe& recipe);

// Applies the settings at the start of a training document: its base, its method (a recipe), and recipe keys. Options
// override them. A note lists the applied and the ignored settings.
void take_document_settings(TrainFlags& flags);

// Splits paths at commas, except where a file has a comma in its name.
std::vector<std::string> split_paths(const std::string& text);

// Chooses the chat template and stores it in the model; prints a note where it is not the model's own. A resumed run
// (`is_resumed`) keeps the template it started with, even if the file has moved.
void choose_template(TrainingData& data, const model::recipe::Recipe& recipe, bool is_resumed,
                     model::arch::Model& model);

// The cache for tokenized data; null where --cache or the environment turns it off.
std::shared_ptr<SealedFolder> data_cache(const Shared& shared);

// The batches of a run; prints a table of dropped or truncated rows. `cache`: for tokens; null: none. Error where
// `strict` is set and a row was dropped.
std::shared_ptr<const model::data::Batches> make_batches(const TrainingData& data,
                                                         const model::text::Tokenizer& tokenizer,
                                                         const model::recipe::Recipe& recipe, int64_t length,
                                                         const std::shared_ptr<SealedFolder>& cache);

// The number of steps for the recipe's epochs; nullopt where it sets none.
std::optional<int64_t> steps_of_epochs(const model::recipe::Recipe& recipe, const model::data::Batches& batches);

}  // namespace lumen::cli
