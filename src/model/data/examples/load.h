// Data files as tokenized examples: which files, what became of each row, and the cache of tokens. Proved by
// tests/model/data/data_load_test.cpp.
#pragma once

#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "model/data/examples/chat_mask.h"
#include "model/data/examples/example_store.h"
#include "model/data/rows/shapes.h"

namespace lumen::model::data {

struct ReadOptions {
  std::string form = "auto";  // of rows: "auto", or the name of an Example::Kind (example_kind_name)
  std::map<std::string, std::string> columns;
  TrainOn train_on = TrainOn::assistant;
  templates::ChosenTemplate chat;
  std::shared_ptr<SealedFolder> cache;  // null: tokens are held in memory, and not kept
};

// Error (usage) that lists the names when it is none.
void check_data_form(const std::string& form);

// The data files of a path: itself, or those of a folder and of the folders in it, by name.
std::vector<std::filesystem::path> data_files(const std::filesystem::path& path);

// What the first rows that can be read are; nothing when there are none.
std::optional<Example::Kind> kind_of_rows(const std::vector<std::filesystem::path>& files,
                                          const std::map<std::string, std::string>& columns);

// One data set.
struct LoadedExamples {
  std::vector<DataFile> files;
  std::shared_ptr<const ExampleStore> store;
  bool from_cache = false;
};
// Rows are tokenized once; the same files, tokenizer, template and options find them in the cache. Error when no row
// can be used.
LoadedExamples load_examples(const std::vector<std::filesystem::path>& files, const text::Tokenizer& tokenizer,
                             const ReadOptions& options);

// The documents of all rows, for a tokenizer that is to be trained on them; rows that give none are counted.
std::vector<std::string> documents_of_rows(const std::vector<std::filesystem::path>& files, const ReadOptions& options,
                                           RowReport* report);

}  // namespace lumen::model::data
