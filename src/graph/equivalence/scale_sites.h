// Scale sites: activations x, read by products with weights, whose channels may be divided by numbers s > 0: columns of
// those weights are multiplied by s, and the producers of x absorb 1 / s: a norm's weight and bias, rows of the
// preceding weights, biases. Query and key sites: queries are multiplied, keys divided. Channels that must have the
// same number (pairs that rotate together, heads that share values) share one.
// Proved by tests/graph/equivalence/sites_test.cpp, and for all families by tests/model/compress/equivalent_transform.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "graph/ir/graph.h"

namespace lumen::graph {

// The axes of a parameter [.., N, K] that numbers apply to: all; all but the last; all but the one before the last.
enum class Along : uint8_t { elements, rows, columns };

// The change of a channel: 0: it stays; i + 1: it is multiplied by s[i]; -(i + 1): it is divided by s[i].
using Power = int32_t;

struct ScaledParameter {
  std::string parameter;
  Along along = Along::elements;
  std::vector<Power> powers;  // row-major over those axes
  double offset = 0;          // p becomes (p + offset) * s - offset: norms that store their weight less 1
};

struct ScaleSite {
  std::string value;                 // the label of x, for messages
  std::vector<std::string> readers;  // weights whose columns are multiplied; none for queries and keys
  int64_t free = 0;                  // the length of s
  // The multiplier of x, by channel: of the first reader's columns, matrix by matrix of a stacked one. For queries and
  // keys: the multiplier of queries, by key head and position in the head.
  std::vector<Power> powers;
  std::vector<ScaledParameter> changes;  // readers among them
  std::string reason;                    // why some channels share or lack a number of their own; empty if none does

  bool is_whole() const { return free > 0 && free == std::ssize(powers); }
};

// In the order of the graph, including those that are not free.
std::vector<ScaleSite> scale_sites(const Graph& g);
std::vector<ScaleSite> query_key_sites(const Graph& g);

// A family's function in the form that sites are searched in: without calls, simplified, 2 for every symbol.
Graph with_numbers(Graph function);

}  // namespace lumen::graph
