// Makes a new graph from an old one, node by node, with a map from old to new values: the base of most passes.
#pragma once

#include <vector>

#include "graph/ir/build.h"
#include "graph/ir/graph.h"

namespace lumen::graph {

class Rewriter {
 public:
  explicit Rewriter(const Graph& graph) : from(graph), build(to), map(graph.nodes.size(), -1) { to.name = from.name; }
  Rewriter(const Rewriter&) = delete;
  Rewriter& operator=(const Rewriter&) = delete;

  const Graph& from;
  Graph to;
  Builder build;             // appends to `to`
  std::vector<ValueId> map;  // old value -> new value, -1 while unknown

  ValueId operator[](ValueId old) const { return map[old]; }
  std::vector<ValueId> operands(ValueId old) const;  // of an old node, as new values
  ValueId keep(ValueId old);                         // copies the node; returns and records the copy
  ValueId replace(ValueId old, ValueId by) { return map[old] = by; }
  void keep_label(ValueId old);  // on the replacement, if that has none
  Graph finish();                // results carried over; LUMEN_CHECKs that they were mapped
};

// Appends the body of `callee`, its own calls expanded as well; returns its results as values of `to`. Error when the
// graph gets too large (nested calls can multiply).
std::vector<ValueId> expand_call(Graph& to, const Graph& callee, const std::vector<ValueId>& arguments);

// The graph with every call replaced by its callee's body, innermost included, in the bodies of scans as well.
Graph without_calls(const Graph& g);

// Scans compute one step after another, in callees as well: what reads a chunk reads its scan. Values keep their
// numbers.
void drop_chunks(Graph& g);

// The values that the results and the impure nodes depend on.
std::vector<bool> live_values(const Graph& g);

}  // namespace lumen::graph
