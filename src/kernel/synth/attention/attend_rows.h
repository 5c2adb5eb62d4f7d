// Numbers of each row that maps of the scores' shape read, such as its maximum: where blocks stream rows, they are
// copied with the panels. Proved by tests/kernel/synth/attention/synth_attend_stream_test.cpp.
#pragma once

#include <vector>

#include "kernel/synth/attention/attend.h"

namespace lumen::synth {

struct RowNumber {
  graph::ValueId value = -1;
  Access access;         // over the scores' axes
  bool divides = false;  // it is only a divisor: its reciprocal is copied
  int scratch = -1;      // of the reciprocals
  BufferId source = -1, panel = -1;

  int64_t count(const std::vector<int64_t>& extents) const;  // of distinct numbers
};

// Numbers in memory as f32 that vary along rows, and not along keys.
std::vector<RowNumber> row_numbers(const graph::Plan& plan, const graph::Group& group, const AttentionGradient& a);

}  // namespace lumen::synth
