#include "apps/diffuse/sites/windows.h"

#include <algorithm>

#include "apps/weighted_product/weighted_product.h"
#include "base/check.h"

namespace lumen::graph {
namespace {

bool is_followed(Op op) {
  return op == Op::pad_ || op == Op::slice_ || op == Op::permute_ || op == Op::windows_;
}

// The axis of the operand that equals this axis of the view, whole and in order; -1: there is none.
int axis_before(const Graph& g, const Node& view, int axis) {
  for (size_t d = 0; d < g[view.operands[0]].type.shape.size(); ++d)
    if (axis_after(g, view, d) == axis) return d;
  return -1;
}

}  // namespace

WindowedOperand windowed_operand(const Graph& g, const SiteProduct& at) {
  const Node& node = g[at.product];
  const std::vector<std::string>& i = node.attributes.indices;
  const std::string &of_weight = i[at.side], &of_x = i[1 - at.side];
  WindowedOperand out;
  out.source = node.operands[1 - at.side];
  out.are_channels_last = of_x.back() == of_weight.back();
  if (of_weight.size() == 2) return out;
  std::vector<ValueId> views;  // from the operand down
  std::vector<int> axes;
  size_t taken = 0;
  int axis = of_x.find(of_weight.back());
  for (ValueId v = out.source; is_followed(g[v].op); v = g[v].operands[0]) {
    views.push_back(v);
    axes.push_back(axis);
    axis = axis_before(g, g[v], axis);
    if (axis < 0) break;
    const ValueId below = g[v].operands[0];
    if (std::cmp_not_equal(axis + 1, g[below].type.shape.size())) continue;
    taken = views.size();
    out.source = below;
    out.are_channels_last = true;
  }
  out.views.assign(views.rend() - taken, views.rend());
  out.channel_axes.assign(axes.rend() - taken, axes.rend());
  return out;
}

ValueId view_again(Builder& build, const Graph& from, const WindowedOperand& operand, size_t k, ValueId value,
                   int64_t channels, bool has_new_axis) {
  const Node& node = from[operand.views[k]];
  Shape shape = node.type.shape;
  shape[operand.channel_axes[k]] = Dim(channels);
  std::vector<int64_t> starts = node.attributes.starts, strides = node.attributes.strides;
  const size_t rank = shape.size();
  if (has_new_axis) shape.insert(shape.begin(), build.type(value).shape[0]);
  if (node.op == Op::permute_) {
    std::vector<int> axes = node.attributes.axes;
    if (!has_new_axis) return build.permute(value, axes);
    for (int& a : axes) ++a;
    axes.insert(axes.begin(), 0);
    return build.permute(value, axes);
  }
  if (has_new_axis && node.op == Op::windows_) {
    std::vector<int64_t> more = {1};
    more.resize(rank + 1, 0);
    for (size_t d = 0; d < starts.size(); ++d) {
      more.push_back(0);
      more.insert(more.end(), strides.begin() + d * rank, strides.begin() + (d + 1) * rank);
    }
    strides = more;
  } else if (has_new_axis) {
    strides.insert(strides.begin(), 1);
  }
  if (has_new_axis) starts.insert(starts.begin(), 0);
  if (node.op == Op::windows_) return build.windows(value, starts, strides, shape);
  if (node.op == Op::slice_) return build.slice(value, starts, shape, strides);
  LUMEN_CHECK(node.op == Op::pad_, "{} is not followed", op_info(node.op).name);
  return build.pad(value, shape, starts, strides);
}

}  // namespace lumen::graph
