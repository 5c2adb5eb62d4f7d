// Numbers that maps of the scores' shape read of each row, such as its maximum: where blocks walk rows they travel with
// the panels. Proved by tests/kernel/synth/attention/synth_attend_stream_test.cpp.
#pragma once

#include <vector>

#include "kernel/synth/attention/attend.h"

namespace lumen::synth {

struct RowNumber {
  graph::ValueId value = -1;
  Access access;         // over the scores' axes
  bool divides = false;  // and is read for nothing else: its reciprocal travels
  int scratch = -1;      // where that lies
  BufferId source = -1, panel = -1;

  int64_t count(const std::vector<int64_t>& extents) const;  // of different ones
};

// Those in memory as f32 that vary along rows, and not along keys.
std::vector<RowNumber> row_numbers(const graph::Plan& plan, const graph::Group& group, const AttentionGradient& a);

}  // namespace lumen::synth
