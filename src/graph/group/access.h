// How a value inside a group is read: views folded into strides over an iteration space. Proved by
// tests/graph/group/access_test.cpp.
#pragma once

#include <cstdint>
#include <vector>

#include "graph/fuse/plan.h"
#include "graph/match/access.h"

namespace lumen::graph {

int64_t product(const std::vector<int64_t>& x);
std::vector<int64_t> own_strides_of(const std::vector<int64_t>& extents);  // dense, but 0 along axes of one

bool reads_memory(const Group& group, ValueId v);  // v is one of the group's inputs
// Whether a kernel of the group reads v rather than computing it.
bool is_load(const Plan& plan, const Group& group, ValueId v);

// Follows the views above v, stopping at values the group reads from memory; strides of axes of extent 1 are 0.
// LUMEN_CHECKs that strides can express the access (fuse ensures it).
Access follow(const Plan& plan, const Group& group, ValueId v);

// The same over the axes of a shape v broadcasts to.
Access follow_to(const Plan& plan, const Group& group, ValueId v, const std::vector<int64_t>& target);

// Merges axes that all accesses traverse contiguously, outermost first. `barrier[d]`: axis d must not merge with axis d
// + 1 (e.g. a reduced axis with a kept one). Axes of extent 1 vanish; at least one axis remains. `axis_of[k]` lists the
// original axes of the new axis k.
struct Collapsed {
  std::vector<int64_t> extents;
  std::vector<std::vector<int64_t>> strides;  // per access
  std::vector<int> first_axis;                // original axis a new axis begins with; -1 for the lone axis of a scalar
};
Collapsed collapse(const std::vector<int64_t>& extents, const std::vector<std::vector<int64_t>>& strides,
                   const std::vector<bool>& barrier);

}  // namespace lumen::graph
