// Batches of tokenized examples. Every row is visited once an epoch, in an order that is a pure function of (seed,
// epoch); with shares given to several data sets, rows are drawn from them in a fixed pattern of these shares, each set
// again in its own epochs. Proved by tests/model/data/data_batches_test.cpp.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "model/data/examples/batches.h"
#include "model/data/examples/load.h"
#include "model/data/examples/plan.h"

namespace lumen::model::data {

struct BatchOptions {
  uint32_t seed = 1;
  int64_t rows = 1, length = 1, accumulate = 1;
  bool packing = false;
  Overflow overflow = Overflow::cut;
  double validation = 0.1;  // share of the rows, of each set; none where sets for validation are given
  std::vector<double> mix;  // shares of the sets; empty: by their sizes
};

class ExampleBatches final : public Batches {
 public:
  // All sets have rows of one form. Error when a shape of batches does not fit them.
  ExampleBatches(std::vector<LoadedExamples> training, std::vector<LoadedExamples> validation, BatchOptions options);

  bool has_weights() const override { return true; }
  bool has_starts() const override { return options_.packing && form_ == RowForm::sequences; }
  RowForm form() const override { return form_; }
  bool has_chats() const override;
  Batch training(int64_t step, int64_t part) const override;
  int64_t validation_rows() const override;
  Batch validation(int64_t first, int64_t rows) const override;
  void require(double vocabulary) const override;
  const std::vector<DataFile>& files() const override { return files_; }
  Hash token_hash() const override { return hash_; }

  uint64_t epoch_rows() const { return training_.rows; }
  int64_t steps_of(double epochs) const;               // rounded up
  const RowReport& report() const { return report_; }  // of reading and of what windows cut or drop
  int64_t training_tokens() const override { return training_.tokens; }
  uint64_t training_learned() const { return training_.learned; }
  uint64_t validation_tokens() const { return validation_.tokens; }

 private:
  struct Part {  // of one set
    std::shared_ptr<const ExampleStore> store;
    RowPlan plan;
    uint64_t units = 0;  // rows, or pairs of them
  };
  struct Side {
    std::vector<Part> parts;
    uint64_t rows = 0;  // of an epoch
    uint64_t tokens = 0, learned = 0;
  };
  struct Place {  // a row's
    const Part* part;
    uint64_t row;
  };

  void add(Side& side, const LoadedExamples& set, const std::vector<uint32_t>& chosen);
  Place training_place(uint64_t row) const;
  uint64_t unit() const { return form_ == RowForm::pairs ? 2 : 1; }
  void put(Batch& batch, int64_t row, const Place& place, float weight) const;
  Batch empty_batch(int64_t rows) const;
  uint64_t learned_of(const Place& place) const;

  BatchOptions options_;
  RowForm form_ = RowForm::sequences;
  Side training_, validation_;
  std::vector<uint32_t> pattern_;              // of sets, where they have shares
  std::vector<std::vector<uint64_t>> before_;  // of each set: its places in the pattern before a place
  std::vector<DataFile> files_;
  RowReport report_;
  Hash hash_;
};

}  // namespace lumen::model::data
