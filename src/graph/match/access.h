// How a load reads its source: views (reshape, permute, broadcast, slice, windows) folded into an affine index. Used by
// fuse to decide what a kernel can absorb, and by synthesis to address memory. Independent of kernels.
// Proved by tests/graph/access_test.cpp.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "graph/ir/graph.h"

namespace lumen::graph {

// Element [i..] of the value is element  offset + sum_d i[d] * strides[d]  of `source`, counting source elements
// row-major.
struct Access {
  ValueId source = -1;  // below all views: a value in memory, a cast out of a format, a splat constant, an iota,
                        // or any computed value for callers that allow it
  int64_t offset = 0;   // in elements
  // One per axis of the value; 0 where broadcast; never negative. Different elements may read the same source element,
  // and strides need not decrease or be multiples of each other: windows overlap.
  std::vector<int64_t> strides;
};

// Follows the views above `v` down to the first node that is no view. nullopt if strides cannot express a reshape (it
// merges axes that are not contiguous). All dims must be numbers. For a v that is no view: identity. Views among
// `stops` are in memory: they are sources.
std::optional<Access> affine_access(const Graph& g, ValueId v, const std::vector<ValueId>& stops = {});

// The access to a value of extents `own` given the axes of a consumer to which it broadcasts (dims align at the right,
// 1 stretches): one stride per axis of `target`.
Access broadcast(const Access& access, const std::vector<int64_t>& own, const std::vector<int64_t>& target);

// How a view of a gather reads its table: element [i..] is element  rows.offset + sum i[d] * rows.strides[d] + stride *
// n of the table, where n is element index.offset + sum i[d] * index.strides[d] of the index.
struct GatheredAccess {
  ValueId gather = -1;
  Access rows, index;
  int64_t stride = 0;  // of the table's first axis
  int64_t count = 0;   // its extent
};
// nullopt if v is no view of a gather, or if strides cannot express its axes.
std::optional<GatheredAccess> gathered_access(const Graph& g, ValueId v);

bool is_view(Op op);  // reshape, permute, broadcast, slice, windows
// The index of the result that alone reads `axis` of the operand of `windows`, with stride 1, and no other axis; or -1.
int plain_index(const Graph& g, const Node& windows, int axis);
bool is_splat(const Node& node);                                             // a constant that holds one number
bool is_unpack(const Graph& g, ValueId v);                                   // a cast out of a format
std::vector<int64_t> extents_of(const Shape& shape);                         // numeric dims as plain numbers
std::vector<int64_t> dense_strides_of(const std::vector<int64_t>& extents);  // row-major, in elements
// By value: parameters and packed inputs that no node of the graph writes.
std::vector<bool> unwritten(const Graph& g);

}  // namespace lumen::graph
