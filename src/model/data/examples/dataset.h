// Text as training data: read once, tokenized once, cut into windows. A random batch is a pure function of (seed,
// index), so a resumed training sees exactly the batches it would have seen. Proved by
// tests/model/data/dataset_test.cpp.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "base/hash.h"
#include "model/text/tokenizer/tokenizer.h"

namespace lumen::model::data {

struct DatasetOptions {
  double validation = 0.1;  // share of the text, taken from its end
  bool separate = true;     // put EOS (where the tokenizer has one) behind every document of a folder or jsonl file
};

// A file as it was read: what a resumed training compares.
struct DataFile {
  std::string path;  // "" for the text that comes with the program
  uint64_t bytes = 0;
  Hash hash;
};

// Documents of a file (text, or .jsonl with {"text": ...}) or of a folder (*.txt, *.md, *.jsonl, by name, recursively).
struct Documents {
  std::vector<std::string> contents;
  std::vector<DataFile> files;
  bool one_text = false;  // a file that is one text
};
Documents load_documents(const std::filesystem::path& path);
Documents embedded_documents();
std::vector<std::string> read_documents(const std::filesystem::path& path);  // the contents alone
// The text that comes with the program.
std::string_view embedded_text();

class Dataset {
 public:
  // One text. It is cut at the given share of its bytes (on a character boundary) before it is tokenized.
  static Dataset from_text(std::string_view text, const text::Tokenizer& tokenizer, DatasetOptions options = {});
  static Dataset from_documents(const std::vector<std::string>& documents, const text::Tokenizer& tokenizer,
                                DatasetOptions options = {});
  static Dataset from(const Documents& documents, const text::Tokenizer& tokenizer, DatasetOptions options = {});
  static Dataset load(const std::filesystem::path& path, const text::Tokenizer& tokenizer, DatasetOptions options = {});

  const std::vector<text::TokenId>& train() const { return train_; }
  const std::vector<text::TokenId>& validation() const { return validation_; }
  const std::vector<DataFile>& files() const { return files_; }
  Hash token_hash() const;  // of the ids of both parts: what a model is trained and measured on

 private:
  std::vector<text::TokenId> train_, validation_;
  std::vector<DataFile> files_;
};

// Batch `index` of random windows: rows x (length + 1) ids, row-major; inputs are [0, length), targets [1, length + 1).
// Error when there are fewer than length + 1 tokens.
std::vector<text::TokenId> random_batch(const std::vector<text::TokenId>& tokens, uint64_t seed, uint64_t index,
                                        int64_t rows, int64_t length);

// Windows for evaluation, end to end: window w covers tokens [w * length, w * length + length + 1).
int64_t window_count(const std::vector<text::TokenId>& tokens, int64_t length);
// Windows first .. first + rows, rows x (length + 1); all must exist.
std::vector<text::TokenId> window_batch(const std::vector<text::TokenId>& tokens, int64_t first, int64_t rows,
                                        int64_t length);

}  // namespace lumen::model::data
