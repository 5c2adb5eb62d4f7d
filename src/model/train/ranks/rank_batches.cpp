#include "model/train/ranks/rank_batches.h"

#include "base/check.h"

namespace lumen::model::train {
namespace {

template <class T>
std::vector<T> part(const std::vector<T>& all, int64_t from, int64_t count) {
  if (all.empty()) return {};
  return {all.begin() + from, all.begin() + from + count};
}

class RankBatches : public data::Batches {
 public:
  RankBatches(std::shared_ptr<const data::Batches> all, int rank, int ranks)
      : all_(std::move(all)), rank_(rank), ranks_(ranks) {}
  bool has_weights() const override { return all_->has_weights(); }
  bool has_starts() const override { return all_->has_starts(); }
  data::RowForm form() const override { return all_->form(); }
  bool has_chats() const override { return all_->has_chats(); }
  data::Batch training(int64_t step, int64_t number) const override {
    return share_of(all_->training(step, number), rank_, ranks_);
  }
  int64_t validation_rows() const override { return all_->validation_rows(); }
  data::Batch validation(int64_t first, int64_t rows) const override { return all_->validation(first, rows); }
  void require(double vocabulary) const override { all_->require(vocabulary); }
  const std::vector<data::DataFile>& files() const override { return all_->files(); }
  int64_t training_tokens() const override { return all_->training_tokens(); }
  Hash token_hash() const override { return all_->token_hash(); }

 private:
  std::shared_ptr<const data::Batches> all_;
  int rank_, ranks_;
};

}  // namespace

data::Batch share_of(const data::Batch& batch, int rank, int ranks) {
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

std::shared_ptr<const data::Batches> rank_batches(std::shared_ptr<const data::Batches> all, int rank, int ranks) {
  return std::make_shared<RankBatches>(std::move(all), rank, ranks);
}

}  // namespace lumen::model::train
