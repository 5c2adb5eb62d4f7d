// The share of one rank in batches: rows of every batch, in the order that one process would read them in. Proved by
// tests/model/train/ranks/rank_batches_test.cpp.
#pragma once

#include <memory>

#include "model/data/examples/batches.h"

namespace lumen::model {

// Rows of rank `rank` of `ranks`; they divide the batch.
Batch share_of(const Batch& batch, int rank, int ranks);

// Batches whose training rows are a rank's share. Validation rows are all.
std::shared_ptr<const Batches> rank_batches(std::shared_ptr<const Batches> all, int rank, int ranks);

}  // namespace lumen::model
