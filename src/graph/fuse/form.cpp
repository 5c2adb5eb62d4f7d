// row_form: whether a set of nodes keeps the contract of a map or reduce group (plan.h). Proved by
// tests/graph/fuse_test.cpp.
#include <algorithm>
#include <set>

#include "graph/fuse/partition.h"
#include "graph/match/access.h"

namespace lumen::graph {

namespace {

constexpr int64_t kFewRows = 8;
constexpr int64_t kLongRow = 65536;
constexpr size_t kMaxNodes = 256;  // per group: bounds compile time
constexpr size_t kMaxMemory = 40;  // values read or written: bounds kernel parameters

// Axes of extent 1 do not affect the layout.
bool trailing(const Shape& full, const std::vector<int>& axes) {
  bool inside = false;
  for (size_t d = 0; d < full.size(); ++d) {
    if (full[d] == Dim(1)) continue;
    const bool reduced = std::find(axes.begin(), axes.end(), static_cast<int>(d)) != axes.end();
    if (inside && !reduced) return false;
    inside = inside || reduced;
  }
  return true;
}

bool may_be_row_kernel(const Shape& full, const Shape& reduced, const std::vector<int>& axes) {
  const int64_t rows = elements(reduced).number();
  const int64_t row = elements(full).number() / rows;
  return trailing(full, axes) && (rows >= kFewRows || row <= kLongRow);
}

class RowForm {
 public:
  RowForm(const Graph& g, const Users& users, const std::vector<ValueId>& nodes) : g_(g), users_(users), nodes_(nodes) {
    std::sort(nodes_.begin(), nodes_.end());
  }

  std::optional<Form> judge() {
    if (nodes_.size() > kMaxNodes || memory() > kMaxMemory) return std::nullopt;
    for (ValueId v : nodes_) {
      if (g_[v].op == Op::reduce_ && root_ < 0) root_ = v;
    }
    if (root_ >= 0) {
      full_ = g_[g_[root_].operands[0]].type.shape;
      reduced_ = g_[root_].type.shape;
    } else {
      full_ = reduced_ = g_[nodes_[0]].type.shape;
    }
    for (ValueId v : nodes_) {
      if (!fits(v)) return std::nullopt;
    }
    return Form{root_ >= 0 ? KernelShape::reduce : KernelShape::map, root_};
  }

 private:
  bool inside(ValueId v) const { return std::binary_search(nodes_.begin(), nodes_.end(), v); }
  bool escapes(ValueId v) const {
    return std::any_of(users_[v].begin(), users_[v].end(), [&](ValueId u) { return !inside(u); });
  }

  size_t memory() const {
    size_t count = 0;
    for (ValueId v : nodes_) {
      count += escapes(v) ? 1 : 0;
      for (ValueId o : g_[v].operands) count += !inside(o) && read_below(g_, o) >= 0 ? 1 : 0;
    }
    return count;
  }

  // Operands come from registers or from memory: never a view of a value the group computes, never a state just
  // written.
  bool operands_fit(const Node& node) const {
    return std::all_of(node.operands.begin(), node.operands.end(), [&](ValueId o) {
      if (inside(o)) return g_[o].op != Op::update_;
      const ValueId below = read_below(g_, o);
      return below < 0 || !inside(below);
    });
  }

  bool fits(ValueId v) {
    const Node& node = g_[v];
    if (!operands_fit(node)) return false;
    if (node.op == Op::update_) return root_ < 0 && update_fits(v);
    if (node.op == Op::reduce_) {
      return g_[node.operands[0]].type.shape == full_ && node.attributes.axes == g_[root_].attributes.axes;
    }
    if (node.op != Op::map_ && node.op != Op::random_) return false;
    const bool wide = node.type.shape == full_;
    if (!wide && node.type.shape != reduced_) return false;
    if (root_ < 0 || full_ == reduced_ || !wide) return true;
    const bool after = after_reduce(v);
    return !(after || escapes(v)) || may_be_row_kernel(full_, reduced_, g_[root_].attributes.axes);
  }

  // Depends on a reduce of the group. Nodes are visited in order, so operands are already known.
  bool after_reduce(ValueId v) {
    for (ValueId o : g_[v].operands) {
      if (inside(o) && (g_[o].op == Op::reduce_ || after_.contains(o) || reduced_after_reduce(o))) after_.insert(v);
    }
    return after_.contains(v);
  }
  bool reduced_after_reduce(ValueId v) const {  // a map of the reduced shape, downstream of a reduce
    if (g_[v].op != Op::map_ || g_[v].type.shape != reduced_) return false;
    return std::any_of(g_[v].operands.begin(), g_[v].operands.end(),
                       [&](ValueId o) { return inside(o) && (g_[o].op == Op::reduce_ || reduced_after_reduce(o)); });
  }

  // Written in place: the whole state, and the old state is only read at the element being written.
  bool update_fits(ValueId v) const {
    const Node& node = g_[v];
    if (node.operands.size() != 2 || g_[node.operands[1]].type != node.type || node.type.shape != full_) return false;
    if (node.type.element.format || !inside(node.operands[1]) || g_[node.operands[1]].op == Op::update_) return false;
    for (ValueId n : nodes_) {
      for (ValueId o : g_[n].operands) {
        if (!inside(o) && o != node.operands[0] && read_below(g_, o) == node.operands[0]) return false;
      }
    }
    return true;
  }

  const Graph& g_;
  const Users& users_;
  std::vector<ValueId> nodes_;
  std::set<ValueId> after_;
  ValueId root_ = -1;
  Shape full_, reduced_;
};

}  // namespace

std::optional<Form> row_form(const Graph& g, const Users& users, const std::vector<ValueId>& nodes) {
  return RowForm(g, users, nodes).judge();
}

}  // namespace lumen::graph
