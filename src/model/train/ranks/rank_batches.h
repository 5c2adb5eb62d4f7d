// A rank's share of batches: rows of every batch, in the order in which one process would read them. Proved by
// tests/model/train/ranks/rank_batches_test.cpp.
#pragma once

#include <memory>

#include "model/data/examples/batches.h"

namespace lumen::model::train {

// Rows of rank `rank` of `ranks`; the number of ranks must divide the batch.
data::Batch share_of(const data::Batch& batch, int rank, int ranks);

// Batches with a rank's share of training rows and all validation rows.
std::shared_ptr<const data::Batches> rank_batches(std::shared_ptr<const data::Batches> all, int rank, int ranks);

}  // namespace lumen::model::train
