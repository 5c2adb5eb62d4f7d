// Where the carries of a scan lie while it runs. Proved by tests/graph/steps/scan_test.cpp.
#pragma once

#include <vector>

#include "graph/ir/graph.h"

namespace lumen::graph {

// A carry whose values of all steps are outputs as well: they lie one behind the other, the first in front of the first
// step, and outputs are parts of that. Every other carry has two places that it alternates between.
struct History {
  int carry = 0;
  int64_t bytes = 0;               // of one value
  int64_t steps = 0;               // there is one value more
  std::vector<int> before, after;  // outputs: of each step what it began with, and what it made
  bool reverse = false;
  // Bytes into the memory where a step, by the index of its sequences, finds the carry and leaves the next: at + step *
  // bytes. And where the last carry is.
  int64_t read_at() const { return reverse ? bytes : 0; }
  int64_t written_at() const { return reverse ? 0 : bytes; }
  int64_t last_at() const { return reverse ? 0 : steps * bytes; }
  int64_t first_at() const { return reverse ? steps * bytes : 0; }
};

// Those of a scan whose extents are numbers. A value whose bytes are no multiple of `alignment` has none: outputs begin
// as aligned as others.
std::vector<History> histories_of(const Graph& g, ValueId scan, int64_t alignment);

// The body with every result computed by it, as it lies in memory (the shape may be another), and each another value:
// inputs, views, results of scans, which have places of their own, and what is a result already are copied.
// `in_histories`: results that are not stored apart, for a history has them; they stay as they are.
Graph with_own_results(const Graph& body, const std::vector<bool>& in_histories);

}  // namespace lumen::graph
