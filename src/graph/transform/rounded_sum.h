// add_rounded_sums: quantization-aware training with an adapter inside the rounding. If a weight W has a low-rank
// change, all readers of W read W + scale B A instead, with its own label, so that assign_formats can round the sum:
// the loss is then that of the weights that will be shipped, and its gradient passes straight-through the rounding to A
// and B. The base is read in its stored format; the sum exists only within a step. Proved by
// tests/graph/transform/rounded_sum_test.cpp.
#pragma once

#include <string>
#include <vector>

#include "graph/ir/build.h"
#include "graph/transform/low_rank.h"

namespace lumen::graph {

// w + scale b a, for one matrix or stacked ones. `rows`: a and b are those of a weight whose rows are gathered.
ValueId low_rank_sum(Builder& build, ValueId w, ValueId a, ValueId b, double scale, bool rows);

struct RoundedSum {
  LowRank change;
  // Elements of a group that share a magnitude, a parameter that multiplies the sum; 0: none. If the sum is rounded
  // with learned fields, those must be scaled with it (scale_fields).
  int64_t group = 0;
};
// The label of the sum, to name it in a FormatAssignment.
std::string rounded_sum(const std::string& weight);
// [.., K / group], initialized to 1.
std::string group_magnitude(const std::string& weight);

// The graph has no calls and is simplified: each use refers to its weight directly. Error when a weight is not used or
// no matrix.
Graph add_rounded_sums(Graph g, const std::vector<RoundedSum>& parts);

// Call after assign_formats has made the fields of formats inputs: fields of sums with group magnitudes are multiplied
// by their group's, so that codes stay those of the sum without magnitudes and the decoded values are multiplied.
Graph scale_fields(Graph g, const std::vector<RoundedSum>& parts);

// Gradients of A and B that were products of a weight's whole gradient become products of narrow ones: (dY^T X) A^T =
// dY^T (X A^T), if dY^T X has no other readers. Then no gradient of the weight's size is computed.
Graph narrow_gradients(Graph g);

}  // namespace lumen::graph
