// The input of a convolution, from the image to its windows.
#pragma once

#include <vector>

#include "apps/diffuse/sites/sites.h"
#include "graph/ir/build.h"

namespace lumen::graph {

// The operand of a site's product as views and pads of an image whose last axis is the channels' (the weight's last);
// each view keeps the channels whole. A product with a matrix reads its operand unchanged.
struct WindowedOperand {
  ValueId source = -1;
  bool are_channels_last = false;  // false: the operand itself has them on another axis, and is the source
  std::vector<ValueId> views;      // pads, slices, permutes, windows, from the source up
  std::vector<int> channel_axes;   // of each of them
};
WindowedOperand windowed_operand(const Graph& g, const SiteProduct& at);

// View k applied to another value with the given number of channels, which may have a new leading axis.
ValueId view_again(Builder& build, const Graph& from, const WindowedOperand& operand, size_t k, ValueId value,
                   int64_t channels, bool has_new_axis);

}  // namespace lumen::graph
