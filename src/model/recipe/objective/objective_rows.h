// What objectives need of rows besides the graph: log probabilities of answers, rows whose answers are of other
// prompts, and what a model once made of rows, remembered by their content. Proved by
// tests/model/recipe/objective/objective_rows_test.cpp.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "base/hash.h"
#include "model/data/examples/batches.h"

namespace lumen::model {

// The log probability of each row's answer (positions that have a weight; all where there are none), from the losses of
// all positions.
std::vector<float> answer_logp(const Batch& batch, const std::vector<float>& losses);

// Each row's prompt with the answer of the row after it, the last with the first's; cut at the row's end. What they
// say of each other is chance: the measure of how far a policy has gone (KTO).
Batch mismatched(const Batch& batch);

// Log probabilities by rows: the same tokens with the same answer are the same row wherever they come.
class RowLog {
 public:
  static std::string key(const Batch& batch, int64_t row);  // a hash, 32 digits
  bool has(const Batch& batch) const;                       // all rows
  void add(const Batch& batch, const std::vector<float>& logp);
  // Error when a row is not known.
  std::vector<float> of(const Batch& batch) const;
  bool empty() const { return rows_.empty(); }
  size_t size() const { return rows_.size(); }
  std::string text() const;
  static RowLog read(const std::string& text, const std::string& place);  // Error when it is none

 private:
  std::map<std::string, float> rows_;  // by key
};

}  // namespace lumen::model
