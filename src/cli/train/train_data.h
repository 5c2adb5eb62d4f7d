// What `lumen train` trains on: plain text as windows, or rows of files (chats, pairs, documents) as examples. Proved
// by tests/cli/train_data_test.cpp.
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
  // Documents of which windows are taken at random; nothing where rows are trained on.
  std::optional<model::Documents> documents;
  std::vector<std::vector<std::filesystem::path>> sets, validation;
  std::optional<model::Example::Kind> kind;  // of the rows that come first
  model::ReadOptions options;

  bool has_rows() const { return !documents; }
  bool has_chats() const { return has_rows() && kind != model::Example::Kind::text; }
  // Everything there is, for a tokenizer that is to be made of it; rows that give no text are counted. `chat_template`:
  // the recipe's.
  std::string all_text(const std::string& chat_template, model::RowReport* report) const;
};

// Looks at what the recipe's [data] names; a note says what was found.
TrainingData find_training_data(const model::Recipe& recipe);

// A document to train on may say in front how: its base, its method (a recipe), and keys of recipes. Flags win. A note
// names what was taken and what means nothing here.
void take_document_settings(TrainFlags& flags);

// Paths with commas between them; a file may have commas in its name.
std::vector<std::string> split_paths(const std::string& text);

// Chooses the template of chats, which becomes the model's; a note says so where it is not its own. A run that goes on
// (`is_resumed`) keeps the one it began with, wherever its file is by now.
void choose_template(TrainingData& data, const model::Recipe& recipe, bool is_resumed, model::Model& model);

// The cache that tokenized data are kept in; null where --cache or the environment says that nothing shall be kept.
std::shared_ptr<SealedFolder> data_cache(const Shared& shared);

// The batches of a run, with a table of the rows that were dropped or cut. `cache`: for tokens; null: none. Error
// where `strict` and a row was dropped.
std::shared_ptr<const model::Batches> make_batches(const TrainingData& data, const model::Tokenizer& tokenizer,
                                                   const model::Recipe& recipe, int64_t length,
                                                   const std::shared_ptr<SealedFolder>& cache);

// Steps of the recipe's epochs, where it has some.
std::optional<int64_t> steps_of_epochs(const model::Recipe& recipe, const model::Batches& batches);

}  // namespace lumen::cli
