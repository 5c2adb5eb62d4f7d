// Which elements of a row the lanes that share it hold for a matrix instruction. A product's sum does not care in which
// order K goes, so a lane takes what lies together in memory: its codes are at the same places as the first lane's,
// some whole bytes further, and one code unpacks them for all lanes. Found from the layout. Proved by
// tests/kernel/synth/fragment_order_test.cpp.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "number/format/format.h"

namespace lumen::synth {

struct FragmentOrder {
  int64_t unit = 0;               // elements that `lanes` lanes hold together: whole blocks
  int64_t group = 0;              // of them lie in each aligned group of so many equally many of each lane's
  std::vector<int64_t> elements;  // the first lane's, group by group
  int64_t lane_elements = 0;      // from a lane's elements to the next lane's
  int64_t lane_bytes = 0;         // the same of what is read
  std::vector<int64_t> sequence;  // of groups: those that read the same bytes follow each other

  int64_t of_group() const { return group * std::ssize(elements) / unit; }  // of a lane
};

// Every group is shared by all lanes, `multiple` elements or a multiple of them each; nothing where the codes of
// `field` do not lie so. `planes`: those that stand at one place of their bytes follow each other, where all stay in
// theirs. `in_pairs`: each beside one at the same place of another byte, not the next, where they lie so.
std::optional<FragmentOrder> order_of_codes(const Format& f, int field, int64_t unit, int64_t group, int64_t lanes,
                                            int64_t multiple, bool planes, bool in_pairs = false);

// Every lane has whole blocks: `own` elements; the group is the unit.
FragmentOrder order_of_blocks(const Format& f, int64_t own, int64_t lanes);

}  // namespace lumen::synth
