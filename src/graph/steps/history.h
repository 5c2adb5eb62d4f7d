// The memory of a scan's carries while it runs. Proved by tests/graph/steps/scan_test.cpp.
#pragma once

#include <vector>

#include "graph/ir/graph.h"

namespace lumen::graph {

// A carry whose values of all steps are outputs as well: they are contiguous, beginning with the value before the first
// step, and outputs are slices of them. Every other carry is double-buffered.
struct History {
  int carry = 0;
  int64_t bytes = 0;               // of one value
  int64_t steps = 0;               // the number of values is one more
  std::vector<int> before, after;  // outputs: the carry before each step, and after it
  bool reverse = false;
  // Bytes from the beginning of the history: a step, by the index of its sequences, reads the carry at read_at() + step
  // * bytes and writes the next at written_at() + step * bytes. The last carry is at last_at().
  int64_t read_at() const { return reverse ? bytes : 0; }
  int64_t written_at() const { return reverse ? 0 : bytes; }
  int64_t last_at() const { return reverse ? 0 : steps * bytes; }
  int64_t first_at() const { return reverse ? steps * bytes : 0; }
};

// The histories of a scan whose extents are numbers. A carry whose bytes are no multiple of `alignment` has none,
// because each output must be aligned like other values.
std::vector<History> histories_of(const Graph& g, ValueId scan, int64_t alignment);

// The body such that each result is a distinct value that the body computes, as it is in memory (the shape may differ):
// inputs, views, results of scans (which have memory of their own) and repeated results are copied. `in_histories`:
// results that are stored in a history; they stay unchanged.
Graph with_own_results(const Graph& body, const std::vector<bool>& in_histories);

}  // namespace lumen::graph
