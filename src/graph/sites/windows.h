// What a convolution reads, from the image up to its windows.
#pragma once

#include <vector>

#include "graph/ir/build.h"
#include "graph/sites/sites.h"

namespace lumen::graph {

// The operand of a site's product as views and pads of an image whose last axis is the channels' (the weight's last),
// each of which keeps the channels whole. A product with a matrix reads its operand as it is.
struct WindowedOperand {
  ValueId source = -1;
  bool are_channels_last = false;  // false: the operand itself has them elsewhere, and is the source
  std::vector<ValueId> views;      // pads, slices, permutes, windows, from the source up
  std::vector<int> channel_axes;   // of each of them
};
WindowedOperand windowed_operand(const Graph& g, const SiteProduct& at);

// What the view k reads, of another value with so many channels, which may have a new first axis before all others.
ValueId view_again(Builder& build, const Graph& from, const WindowedOperand& operand, size_t k, ValueId value,
                   int64_t channels, bool has_new_axis);

}  // namespace lumen::graph
