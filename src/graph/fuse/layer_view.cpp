#include "graph/fuse/layer_view.h"

#include <algorithm>
#include <optional>

#include "graph/match/access.h"

namespace lumen::graph {
namespace {

constexpr int64_t kAlignment = 256;  // bytes: the minimum alignment of device allocations

bool has(const std::vector<ValueId>& list, ValueId v) {
  return std::ranges::find(list, v) != list.end();
}

Type one_layer(Type type) {
  type.shape[0] = Dim(1);
  return type;
}

// Bytes of a layer where layers are stored one after another.
std::optional<int64_t> layer_bytes(const Type& type) {
  if (type.shape.size() < 2 || !type.shape[0].is_number() || type.shape[0].number() < 2) return std::nullopt;
  if (const FormatRef& f = type.element.format; f && (f->row_bytes > 0 || f->tile_bytes > 0 || f->tensor_bytes > 0))
    return std::nullopt;
  const int64_t bytes = byte_size(one_layer(type));
  if (bytes * type.shape[0].number() != byte_size(type) || bytes % kAlignment != 0) return std::nullopt;
  return bytes;
}

bool is_one(const Dim& d) {
  return d.is_number() && d.number() == 1;
}

// One state as a group accesses it.
class View {
 public:
  View(const Graph& g, const Group& group, ValueId state, int64_t bytes) : g_(g), group_(group), bytes_(bytes) {
    seen_ = {state};
    nodes_[state] = g[state];
    nodes_[state].type = one_layer(g[state].type);
  }

  // False if the group accesses more than one layer.
  bool find() {
    for (const ValueId v : group_.nodes) {
      const Node& n = g_[v];
      for (size_t i = 0; i < n.operands.size(); ++i)
        if (has(seen_, n.operands[i]) && (i > 0 || !use(v, n))) return false;
    }
    return layer_.has_value();
  }
  void add_to(LayerView* out) {
    for (auto& [v, node] : nodes_) out->nodes[v] = std::move(node);
    for (const ValueId v : seen_)
      if (has(group_.inputs, v) || has(group_.results, v)) out->offsets[v] = *layer_ * bytes_;
  }

 private:
  bool is_layer(int64_t number) {
    if (!layer_) layer_ = number;
    return *layer_ == number;
  }

  bool use(ValueId v, const Node& n) {
    if (n.op == Op::slice_) {
      if (!is_one(n.type.shape[0]) || has(group_.results, v) || !is_layer(n.attributes.starts[0])) return false;
      Node& slice = nodes_[v] = n;
      slice.attributes.starts[0] = 0;
      return true;
    }
    if (n.op == Op::update_) return use_update(v, n);
    if (!is_unpack(g_, v) || has(group_.results, v)) return false;
    keep(v, n);
    return true;
  }

  // An update of one layer, whose index is a constant with no other use.
  bool use_update(ValueId v, const Node& n) {
    constexpr size_t kFirstStart = 2;
    if (n.operands.size() <= kFirstStart || !is_one(g_[n.operands[1]].type.shape[0])) return false;
    const ValueId start = n.operands[kFirstStart];
    const Node& number = g_[start];
    if (!is_splat(number) || !number.type.shape.empty() || !is_layer(int64_t(number.attributes.data[0]))) return false;
    if (*layer_ < 0 || *layer_ >= g_[n.operands[0]].type.shape[0].number()) return false;
    if (*layer_ != 0) {
      int64_t uses = 0;
      for (const ValueId other : group_.nodes) uses += std::ranges::count(g_[other].operands, start);
      if (uses != 1 || !has(group_.nodes, start)) return false;
      Node& zero = nodes_[start] = number;
      zero.attributes.data = {0};
    }
    keep(v, n);
    return true;
  }

  void keep(ValueId v, const Node& n) {
    seen_.push_back(v);
    Node& one = nodes_[v] = n;
    one.type = one_layer(n.type);
  }

  const Graph& g_;
  const Group& group_;
  int64_t bytes_;
  std::optional<int64_t> layer_;
  std::vector<ValueId> seen_;  // the state, its decoded value, and the state after the update
  std::map<ValueId, Node> nodes_;
};

}  // namespace

LayerView layer_view(const Graph& g, const Group& group) {
  LayerView out;
  const bool updates = group.shape == KernelShape::move && g[group.root].op == Op::update_;
  if (group.shape != KernelShape::attend && !updates) return out;
  for (const ValueId v : group.inputs) {
    const std::optional<int64_t> bytes = layer_bytes(g[v].type);
    if (!bytes) continue;
    View view(g, group, v, *bytes);
    if (view.find()) view.add_to(&out);
  }
  return out;
}

}  // namespace lumen::graph
