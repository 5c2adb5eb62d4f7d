// Tokenized examples: in memory, or in a sealed file of the cache that is mapped, so that data may be larger than
// memory (base/sealed). Its name says of which files, tokenizer, template and options it is. Proved by
// tests/model/data/data_load_test.cpp.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "base/hash.h"
#include "base/sealed/spool.h"
#include "model/data/examples/batches.h"
#include "model/data/rows/row_report.h"

namespace lumen::model::data {

// One text with its tokens. Of pairs, the chosen text and the rejected one follow each other.
struct StoredExample {
  uint64_t first = 0;    // token
  uint64_t line = 0;     // where its row begins
  uint32_t length = 0;   // tokens
  uint32_t learned = 0;  // tokens that are learned; never the first one, which nothing predicts
  uint32_t file = 0;     // of the data set's files
  uint32_t flags = 0;
  static constexpr uint32_t kWanted = 1;  // an answer that was wanted
  static constexpr uint32_t kText = 2;    // plain text: may be cut into windows
};

class ExampleStore {
 public:
  // A token, and whether it is learned.
  static constexpr uint32_t kLearned = uint32_t{1} << 31;

  RowForm form() const { return form_; }
  std::span<const StoredExample> examples() const { return examples_; }
  std::span<const uint32_t> tokens(const StoredExample& example) const {
    return tokens_.subspan(example.first, example.length);
  }
  uint64_t token_count() const { return tokens_.size(); }
  text::TokenId largest() const { return largest_; }
  const RowReport& report() const { return report_; }
  const Hash& hash() const { return hash_; }  // of tokens and examples

  // What the cache holds of these data. Null when there is nothing, or nothing that can be trusted, which is a warning.
  // `files`: names of the data's files, by which the report tells of rows.
  static std::shared_ptr<const ExampleStore> open(SealedFolder& cache, const Hash& key,
                                                  const std::vector<std::string>& files);

 private:
  friend class ExampleWriter;
  // Null where they are not what a writer leaves.
  static std::shared_ptr<const ExampleStore> of(SealedContents contents, const Hash& key,
                                                const std::vector<std::string>& files);

  RowForm form_ = RowForm::sequences;
  std::span<const uint32_t> tokens_;
  std::span<const StoredExample> examples_;
  text::TokenId largest_ = -1;
  RowReport report_;
  Hash hash_;
  std::shared_ptr<const void> keeper_;
};

// A hash of bytes that come bit by bit; how they are cut makes no difference.
class RunningHash {
 public:
  void add(const void* data, size_t size);
  Hash finish();

 private:
  void block();
  std::string buffer_;
  Hash hash_;
};

class ExampleWriter {
 public:
  // Without a cache, in memory. The cache must live as long.
  ExampleWriter(SealedFolder* cache, const Hash& key, std::vector<std::string> files);
  // `tokens` with kLearned; at least one behind the first is learned.
  void add(std::span<const uint32_t> tokens, StoredExample example);
  // `report`: with numbers of files in the place of names.
  std::shared_ptr<const ExampleStore> finish(RowForm form, const RowReport& report);

 private:
  const Hash key_;
  const std::vector<std::string> files_;
  Spool spool_;
  std::vector<StoredExample> examples_;
  uint64_t count_ = 0;
  text::TokenId largest_ = -1;
  RunningHash running_;
};

}  // namespace lumen::model::data
