// How one rank's graph gets values of other ranks, and its own chunks of what every rank has. Counts what is exchanged.
// Proved by tests/graph/partition/partition_test.cpp.
#pragma once

#include "graph/ir/build.h"
#include "graph/partition/partition.h"

namespace lumen::graph {

class RankValues {
 public:
  // `build` adds to `g`.
  RankValues(Graph& g, Builder& build, int ranks) : g_(g), build_(build), ranks_(ranks) {}

  ValueId all_reduce(ValueId x, ScalarOp op);
  // This rank's chunk of the sum of all (reduce-scatter); of one section.
  ValueId scattered_sum(ValueId x, const Split& split);
  // The whole of what is split (all-gather). `again`: what has been gathered before is not kept for it.
  ValueId gathered(ValueId x, const Split& split, bool again);
  // This rank's chunks of every section, taken out of the whole.
  ValueId taken(ValueId x, const Split& split);

  ValueId place();  // which rank it is
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
