// add_rounded_sums: training with an adapter inside the rounding. Where a weight W has a change of low rank, everything
// that reads W reads W + scale B A instead, under a label of its own, so that assign_formats can round the sum: the
// loss is then that of the weights that will be shipped, and its gradient goes straight through the rounding to A and
// B. The base is read as it is stored; the sum lives within a step. Proved by
// tests/graph/transform/rounded_sum_test.cpp.
#pragma once

#include <string>
#include <vector>

#include "graph/ir/build.h"
#include "graph/transform/low_rank.h"

namespace lumen::graph {

// w + scale b a, for one matrix or stacked ones. `rows`: a and b are those of a weight whose rows are read.
ValueId low_rank_sum(Builder& build, ValueId w, ValueId a, ValueId b, double scale, bool rows);

struct RoundedSum {
  LowRank change;
  // Elements of a group that share a magnitude, a parameter that multiplies the sum; 0: none. Whoever rounds the sum
  // with fields that are learned scales those with it (scale_fields).
  int64_t group = 0;
};
// What the sum is called, to name it in a FormatAssignment.
std::string rounded_sum(const std::string& weight);
// [.., K / group], begun at 1.
std::string group_magnitude(const std::string& weight);

// The graph has no calls and is simplified: each use of a weight names it itself. Error when a weight is not used or no
// matrix.
Graph add_rounded_sums(Graph g, const std::vector<RoundedSum>& parts);

// After assign_formats has made the fields of formats inputs: those of sums with group magnitudes count times their
// group's, so that codes stay those of the sum without them and the decoded values are multiplied.
Graph scale_fields(Graph g, const std::vector<RoundedSum>& parts);

// Gradients of A and B that were products of a weight's whole gradient become products of narrow ones: (dY^T X) A^T =
// dY^T (X A^T), where nothing else reads dY^T X. No gradient of the weight's size is computed then.
Graph narrow_gradients(Graph g);

}  // namespace lumen::graph
