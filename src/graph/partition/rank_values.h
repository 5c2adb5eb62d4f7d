// Communication in one rank's graph: values of other ranks, and the rank's chunks of replicated values. Counts the
// exchanges. Proved by tests/graph/partition/partition_test.cpp.
#pragma once

#include "graph/ir/build.h"
#include "graph/partition/partition.h"

namespace lumen::graph {

class RankValues {
 public:
  // `build` adds to `g`.
  RankValues(Graph& g, Builder& build, int ranks) : g_(g), build_(build), ranks_(ranks) {}

  ValueId all_reduce(ValueId x, ScalarOp op);
  // This rank's chunk of the sum over ranks (reduce-scatter); for a split of one section.
  ValueId scattered_sum(ValueId x, const Split& split);
  // The whole of a split value (all-gather). `again`: a new gather, so that an earlier result need not be kept.
  ValueId gathered(ValueId x, const Split& split, bool again);
  // This rank's chunks of every section, sliced from the whole.
  ValueId taken(ValueId x, const Split& split);

  ValueId place();  // the number of this rank
  ValueId scaled_place(int64_t by);
  ValueId is_first();
  const Exchanged& exchanged() const { return exchanged_; }

 private:
  ValueId rows_joined(ValueId rows, ScalarOp op);

  Graph& g_;
  Builder& build_;
  int ranks_;
  ValueId place_ = -1;
  Exchanged exchanged_;
};

}  // namespace lumen::graph
