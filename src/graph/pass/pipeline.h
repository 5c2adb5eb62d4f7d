// Every pass, in order, on one page (pipeline.cpp). Each pass is one file with one function; the verifier runs in between.
#pragma once

#include "graph/ir/graph.h"

namespace lumen::graph {

// inline: calls replaced by their bodies (attend kernels are found by structure later, in fuse).
void inline_calls(Graph& g);
// simplify: constants fold, equal pure nodes are shared, dead nodes go, algebraic identities from the operator tables, chains of
// reshape/permute/broadcast collapse. Exact: bits of results never change.
void simplify(Graph& g);

// assign: which format for which value. Inserts casts; training: fake quantization of parameters, activations or gradients.
struct FormatAssignment {
  enum class What { stored, fake } what = What::fake;  // stored: the input's element type becomes the format; fake: cast there and back
  std::string value;               // name of an input, or label of a node; * and ? match
  FormatRef format;
  FieldSource source = FieldSource::fitted;
};
void assign_formats(Graph& g, const std::vector<FormatAssignment>& assignments);

// Symbols get numbers; afterwards all dims are numbers.
Graph bind_symbols(const Graph& g, const Bindings& symbols);

// fuse: partitions nodes into groups that become one kernel each. Views (reshape, permute, broadcast, slice) are folded into the loads of
// their users where the access stays affine.
enum class KernelShape : uint8_t { map, reduce, dot, attend, move };   // the five shapes of kernels
struct Group {
  KernelShape shape = KernelShape::map;
  std::vector<ValueId> nodes;      // in order; the last is a result unless `results` says more
  std::vector<ValueId> inputs;     // values read from memory
  std::vector<ValueId> results;    // values written to memory
  ValueId root = -1;               // the contract, reduce or move the group is built around; -1 for pure maps
};
struct Plan {
  Graph graph;
  std::vector<Group> groups;       // in execution order; inputs and constants belong to no group
};
Plan fuse(const Graph& g);

// memory: where every value of a plan lives. Values whose lives do not overlap share bytes; updates write in place.
struct Slot {
  enum class Where : uint8_t { none, external, arena } where = Where::none;  // none: fused away or folded
  int64_t offset = 0;              // arena
  int64_t bytes = 0;
  ValueId owner = -1;              // external: the input whose storage this value shares (updates), or itself
};
struct MemoryPlan {
  std::vector<Slot> slots;         // by ValueId
  int64_t arena_bytes = 0;
};
MemoryPlan plan_memory(const Plan& plan);

// The whole way: inline, simplify, assign, bind, simplify, fuse, plan_memory.
struct Pipeline {
  Plan plan;
  MemoryPlan memory;
};
Pipeline run_pipeline(Graph g, const std::vector<FormatAssignment>& assignments, const Bindings& symbols);

}  // namespace lumen::graph
