// The rows of a step that has run last, of one sequence or of many. Proved by tests/model/infer/narrowing_test.cpp.
#pragma once

#include <functional>
#include <vector>

#include "model/infer/narrowing/further_rows.h"

namespace lumen::model::infer {

class StepRows : public RowSource {
 public:
  // `logits` f32 [R, vocabulary], and a function that copies one of its rows. `further` outlives the rows.
  StepRows(run::DeviceTensorRef logits, FurtherRows& further, std::function<std::vector<float>(int64_t row)> fetch)
      : logits_(std::move(logits)),
        further_(further),
        fetch_(std::move(fetch)),
        whole_(logits_->type().shape[0].number()) {}

  std::span<const float> whole(int64_t row) override {
    if (whole_.at(row).empty()) whole_[row] = fetch_(row);
    return whole_[row];
  }
  std::vector<std::optional<Narrowed>> look(std::span<const Look> rows) override {
    return further_.look(logits_, rows);
  }
  std::vector<Tallies> count(std::span<const Count> rows) override { return further_.count(logits_, rows); }

 private:
  run::DeviceTensorRef logits_;
  FurtherRows& further_;
  std::function<std::vector<float>(int64_t)> fetch_;
  std::vector<std::vector<float>> whole_;
};

}  // namespace lumen::model::infer
