// Products of activations with weights in the form with_ranges uses: which indices are rows, groups, outputs and
// columns, which view of which value they read, and which following maps multiply and add per channel.
#pragma once

#include <optional>
#include <set>

#include "apps/classify/ranges/ranges.h"
#include "graph/match/uses.h"

namespace lumen::graph {

// One map of the chain after a product: result = factor * before + term, by channel.
struct ChannelStep {
  enum class What : uint8_t { add, subtract, subtract_from, multiply } what = What::add;
  ValueId by = -1;  // a value that depends only on parameters
};

struct RangedSite {
  RangedProduct product;
  ValueId contract = -1, end = -1;  // the product, and the last value of its chain: the one whose range is used
  ValueId weight = -1, x = -1;      // operands as read
  ValueId source = -1;              // below the views and pads of x
  std::vector<ValueId> views;       // from the source up to x
  int side = 1;                     // which operand the weight is
  std::string rows, groups, outputs, columns;  // letters; the rows' first is the samples' where by_sample
  bool by_sample = false;
  bool samples_first = true;  // the samples' axis is first in all views from the source to x
  std::vector<ChannelStep> steps;
};

// The operation of a map that has exactly one.
std::optional<ScalarOp> only_op(const Node& node);
// Whether the product of some last axes is `count`.
bool ends_in(const Shape& shape, int64_t count);
// Values that depend on parameters and constants alone, and are not written.
std::vector<bool> values_of_parameters(const Graph& g);
// Calls inlined, and maps split into single operations: the form in which sites are searched.
Graph made_plain(Graph g);
// Products of such a graph with numeric dims.
std::vector<RangedSite> find_sites(const Graph& g, int64_t samples);

}  // namespace lumen::graph
