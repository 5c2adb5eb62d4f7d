// How a value inside a group is read: views folded into strides over an iteration space. Knows graphs and numbers, not
// loops. Proved by tests/kernel/synth/synth_map_test.cpp.
#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <vector>

#include "graph/fuse/plan.h"

namespace lumen::synth {

// Element [i..] of a load is element  offset + sum i[d] * strides[d]  of the source.
struct Access {
  graph::ValueId source = -1;
  int64_t offset = 0;
  std::vector<int64_t> strides;
};

std::vector<int64_t> extents_of(const graph::Shape& s);
std::vector<int64_t> dense_strides_of(const std::vector<int64_t>& extents);
std::vector<int64_t> own_strides_of(const std::vector<int64_t>& extents);  // the same, 0 along axes of one
int64_t product(const std::vector<int64_t>& x);

bool is_input(const graph::Group& group, graph::ValueId v);
// Whether a kernel of the group reads v rather than computing it.
bool is_load(const graph::Plan& plan, const graph::Group& group, graph::ValueId v);

// Follows the views above v, stopping at values the group reads from memory. LUMEN_CHECKs that strides can express it
// (fuse sees to that).
Access follow(const graph::Plan& plan, const graph::Group& group, graph::ValueId v);

// The same over the axes of a shape v broadcasts to.
Access follow_to(const graph::Plan& plan, const graph::Group& group, graph::ValueId v,
                 const std::vector<int64_t>& target);

// Merges axes that all accesses walk alike, outermost first. `barrier[d]`: axis d must not merge with axis d + 1 (e.g.
// a reduced axis with a kept one). Axes of extent 1 vanish; at least one axis remains. `axis_of[k]` lists the original
// axes of the new axis k.
struct Collapsed {
  std::vector<int64_t> extents;
  std::vector<std::vector<int64_t>> strides;  // per access
  std::vector<int> first_axis;                // original axis a new axis begins with; -1 for the lone axis of a scalar
};
Collapsed collapse(const std::vector<int64_t>& extents, const std::vector<std::vector<int64_t>>& strides,
                   const std::vector<bool>& barrier);

}  // namespace lumen::synth
