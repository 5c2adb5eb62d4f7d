// What training reads: batches of windows by number, each a pure function of (seed, step, part), so that a resumed run
// sees what it would have seen. Proved by tests/model/data/batches_test.cpp.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "model/data/examples/dataset.h"

namespace lumen::model::data {

// What the rows of a batch are to each other.
enum class RowForm {
  sequences,  // nothing: each is a sequence of its own (a text or a chat), or several sequences share a row
  pairs,      // row 2i is the answer that was chosen, row 2i + 1 the one that was rejected, to the same prompt
  labels,     // each is a prompt with an answer that was wanted or not
};

// Rows of as many positions, row-major. `weights`, `starts` and `labels` are empty where a source has none.
struct Batch {
  int64_t rows = 0, length = 0;
  std::vector<text::TokenId> tokens, targets;
  // What the loss of each position counts. Sequences: in training they sum to 1 over all batches of a step; in
  // validation they are 0 or what a position counts in the mean. Pairs and labels: 1 for the answer's tokens, else 0.
  std::vector<float> weights;
  // For each position where its sequence begins inside the row: attention never looks before that.
  std::vector<int32_t> starts;
  // RowForm::labels, one a row: 1 for an answer that was wanted, 0 for another.
  std::vector<float> labels = {};
};

class Batches {
 public:
  Batches() = default;
  Batches(const Batches&) = delete;
  Batches& operator=(const Batches&) = delete;
  virtual ~Batches() = default;

  // Whether batches have weights, and starts: of all or of none.
  virtual bool has_weights() const { return false; }
  virtual bool has_starts() const { return false; }
  virtual RowForm form() const { return RowForm::sequences; }
  virtual bool has_chats() const { return false; }  // some of the sequences are conversations

  // Batch `part` of the step that follows `step` steps.
  virtual Batch training(int64_t step, int64_t part) const = 0;
  virtual int64_t validation_rows() const = 0;
  // Rows first .. first + rows, which exist.
  virtual Batch validation(int64_t first, int64_t rows) const = 0;

  // Error when there is too little to train or to validate on, or a token that a vocabulary of this size does not have.
  virtual void require(double vocabulary) const = 0;

  virtual const std::vector<DataFile>& files() const = 0;
  // Tokens of one pass over the training data; 0: not known.
  virtual int64_t training_tokens() const { return 0; }
  virtual Hash token_hash() const = 0;  // of everything that batches are made of
};

// Random windows of a text; its validation text from end to end.
std::shared_ptr<const Batches> window_batches(std::shared_ptr<const Dataset> data, uint32_t seed, int64_t rows,
                                              int64_t length, int64_t accumulate);

}  // namespace lumen::model::data
