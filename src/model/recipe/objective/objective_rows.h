// Data for objectives besides the graph: log probabilities of answers, rows with answers of other prompts, and a cache
// of a reference model's log probabilities by row content. Proved by
// tests/model/recipe/objective/objective_rows_test.cpp.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "base/hash.h"
#include "model/data/examples/batches.h"

namespace lumen::model::recipe {

// The log probability of each row's answer (positions with a weight; all positions where there are none), from the
// losses of all positions.
std::vector<float> answer_logp(const data::Batch& batch, const std::vector<float>& losses);

// Each row's prompt with the answer of the next row, the last with the first's; truncated at the row's end. Such
// answers are unrelated to their prompts: KTO estimates the policy's KL divergence on them.
data::Batch mismatched(const data::Batch& batch);

// Log probabilities by row content: rows with the same tokens and answer share an entry.
class RowLog {
 public:
  static std::string key(const data::Batch& batch, int64_t row);  // a hash, 32 hex digits
  bool has(const data::Batch& batch) const;                       // all rows
  void add(const data::Batch& batch, const std::vector<float>& logp);
  // Error when a row has no entry.
  std::vector<float> of(const data::Batch& batch) const;
  bool empty() const { return rows_.empty(); }
  size_t size() const { return rows_.size(); }
  std::string text() const;
  static RowLog read(const std::string& text, const std::string& place);  // Error when it is malformed

 private:
  std::map<std::string, float> rows_;  // by key
};

}  // namespace lumen::model::recipe
