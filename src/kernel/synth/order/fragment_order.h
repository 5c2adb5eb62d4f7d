// Which elements of a row each of the lanes that share it holds for a matrix instruction. A product may sum over K in
// any order, so a lane takes elements that are close in memory: its codes are at the first lane's positions plus some
// whole bytes, and the same instructions unpack them for all lanes. Derived from the layout. Proved by
// tests/kernel/synth/fragment_order_test.cpp.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "number/format/format.h"

namespace lumen::synth {

struct FragmentOrder {
  int64_t unit = 0;               // elements that `lanes` lanes hold together: whole blocks
  int64_t group = 0;              // each aligned group of so many has equally many of each lane's
  std::vector<int64_t> elements;  // the first lane's, group by group
  int64_t lane_elements = 0;      // from a lane's elements to the next lane's
  int64_t lane_bytes = 0;         // the same in bytes that are read
  std::vector<int64_t> sequence;  // of groups: those that read the same bytes follow each other

  int64_t of_group() const { return group * std::ssize(elements) / unit; }  // of a lane
};

// All lanes share every group, with a multiple of `multiple` elements each; nullopt if the codes of `field` have no
// such layout. `planes`: codes at the same bit of their bytes are consecutive, if none crosses bytes. `in_pairs`: each
// is next to one at the same bit of another byte, not the next one, if the layout has such pairs.
std::optional<FragmentOrder> order_of_codes(const Format& f, int field, int64_t unit, int64_t group, int64_t lanes,
                                            int64_t multiple, bool planes, bool in_pairs = false);

// Every lane has whole blocks: `own` elements; the group is the unit.
FragmentOrder order_of_blocks(const Format& f, int64_t own, int64_t lanes);

}  // namespace lumen::synth
