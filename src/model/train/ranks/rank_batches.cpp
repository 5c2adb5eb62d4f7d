#include "model/train/ranks/rank_batches.h"

#include "base/check.h"

namespace lumen::model {
namespace {

template <class T>
std::vector<T> part(const std::vector<T>& all, int64_t from, int64_t count) {
  if (all.empty()) return {};
  return {all.begin() + from, all.begin() + from + count};
}

class RankBatches : public Batches {
 public:
  RankBatches(std::shared_ptr<const Batches> all, int rank, int ranks)
      : all_(std::move(all)), rank_(rank), ranks_(ranks) {}
  bool has_weights() const override { return all_->has_weights(); }
  bool has_starts() const override { return all_->has_starts(); }
  RowForm form() const override { return all_->form(); }
  bool has_chats() const override { return all_->has_chats(); }
  Batch training(int64_t step, int64_t number) const override {
    return share_of(all_->training(step, number), rank_, ranks_);
  }
  int64_t validation_rows() const override { return all_->validation_rows(); }
  Batch validation(int64_t first, int64_t rows) const override { return all_->validation(first, rows); }
  void require(double vocabulary) const override { all_->require(vocabulary); }
  const std::vector<DataFile>& files() const override { return all_->files(); }
  int64_t training_tokens() const override { return all_->training_tokens(); }
  Hash token_hash() const override { return all_->token_hash(); }

 private:
  std::shared_ptr<const Batches> all_;
  int rank_, ranks_;
};

}  // namespace

Batch share_of(const Batch& batch, int rank, int ranks) {
  LUMEN_CHECK(batch.rows % ranks == 0);
  const int64_t rows = batch.rows / ranks, from = rank * rows * batch.length, count = rows * batch.length;
  return {rows,
          batch.length,
          part(batch.tokens, from, count),
          part(batch.targets, from, count),
          part(batch.weights, from, count),
          part(batch.starts, from, count),
          part(batch.labels, rank * rows, rows)};
}

std::shared_ptr<const Batches> rank_batches(std::shared_ptr<const Batches> all, int rank, int ranks) {
  return std::make_shared<RankBatches>(std::move(all), rank, ranks);
}

}  // namespace lumen::model
