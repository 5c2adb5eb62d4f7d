// Tokenized examples made of numbers, for tests of what is done with them.
#pragma once

#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "model/data/examples/example_batches.h"

namespace lumen::model::data {

// An example whose tokens are first, first + 1, ...; the last `learned` of them are learned.
struct MadeExample {
  uint32_t first, length, learned;
  uint32_t flags = 0;
};

inline LoadedExamples made_examples(const std::vector<MadeExample>& list, RowForm form = RowForm::sequences,
                                    const std::string& name = "made.jsonl") {
  ExampleWriter writer(nullptr, {}, {});
  RowReport report;
  uint64_t line = 0;
  for (const MadeExample& e : list) {
    std::vector<uint32_t> tokens;
    for (uint32_t i = 0; i < e.length; ++i)
      tokens.push_back((e.first + i) | (i + e.learned >= e.length ? ExampleStore::kLearned : 0));
    writer.add(tokens, {.line = ++line, .flags = e.flags});
    report.read();
  }
  return {{{name, 10, {1, 2}}}, writer.finish(form, report), false};
}

// A folder that goes when the test ends.
class DataFolder {
 public:
  DataFolder() : path_(std::filesystem::temp_directory_path() / fmt::format("lumen-data-{}", getpid())) {
    std::filesystem::remove_all(path_);
    std::filesystem::create_directories(path_);
  }
  DataFolder(const DataFolder&) = delete;
  DataFolder& operator=(const DataFolder&) = delete;
  ~DataFolder() { std::filesystem::remove_all(path_); }
  std::filesystem::path put(const std::string& name, const std::string& text) const {
    std::ofstream(path_ / name, std::ios::binary) << text;
    return path_ / name;
  }
  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

}  // namespace lumen::model::data
