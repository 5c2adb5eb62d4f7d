#include "model/data/examples/batches.h"

#include <algorithm>

#include "base/error.h"

namespace lumen::model::data {
namespace {

// Windows of length + 1 ids: inputs, and the same one further.
Batch batch_of(const std::vector<text::TokenId>& windows, int64_t rows, int64_t length) {
  Batch batch{rows, length, {}, {}, {}, {}, {}};
  batch.tokens.reserve(rows * length);
  batch.targets.reserve(batch.tokens.capacity());
  for (int64_t r = 0; r < rows; ++r) {
    const auto begin = windows.begin() + r * (length + 1);
    batch.tokens.insert(batch.tokens.end(), begin, begin + length);
    batch.targets.insert(batch.targets.end(), begin + 1, begin + length + 1);
  }
  return batch;
}

class Windows final : public Batches {
 public:
  Windows(std::shared_ptr<const Dataset> data, uint32_t seed, int64_t rows, int64_t length, int64_t accumulate)
      : data_(std::move(data)), seed_(seed), rows_(rows), length_(length), accumulate_(accumulate) {}

  Batch training(int64_t step, int64_t part) const override {
    const uint64_t index = step * accumulate_ + part;
    return batch_of(random_batch(data_->train(), seed_, index, rows_, length_), rows_, length_);
  }

  int64_t validation_rows() const override { return window_count(data_->validation(), length_); }
  Batch validation(int64_t first, int64_t rows) const override {
    return batch_of(window_batch(data_->validation(), first, rows, length_), rows, length_);
  }

  void require(double vocabulary) const override {
    (void)random_batch(data_->train(), seed_, 0, 1, length_);
    if (validation_rows() < 1) {
      throw Error(Exit::user,
                  fmt::format("the validation text has {} tokens, fewer than one window of {}",
                              data_->validation().size(), length_ + 1),
                  "give more text, a larger --validation, or a smaller --length");
    }
    for (const auto* text : {&data_->train(), &data_->validation()}) {
      const text::TokenId last = *std::max_element(text->begin(), text->end());
      if (last >= vocabulary)
        throw Error(Exit::user,
                    fmt::format("the text has token {}, but the model has rows for {} only", last, vocabulary),
                    "the tokenizer is not the model's");
    }
  }

  const std::vector<DataFile>& files() const override { return data_->files(); }
  int64_t training_tokens() const override { return data_->train().size(); }
  Hash token_hash() const override { return data_->token_hash(); }

 private:
  std::shared_ptr<const Dataset> data_;
  uint32_t seed_;
  int64_t rows_, length_, accumulate_;
};

}  // namespace

std::shared_ptr<const Batches> window_batches(std::shared_ptr<const Dataset> data, uint32_t seed, int64_t rows,
                                              int64_t length, int64_t accumulate) {
  return std::make_shared<Windows>(std::move(data), seed, rows, length, accumulate);
}

}  // namespace lumen::model::data
