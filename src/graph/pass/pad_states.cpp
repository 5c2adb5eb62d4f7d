// pad_states: rows of states become longer, as number formats with blocks need it; the further numbers are zeros.
// Products that sum over a row sum over the zeros as well, with zeros on the other side; products that keep a row's
// axis compute zeros there. All other uses read the first part of a row. Proved by tests/graph/pass_test.cpp.
#include <algorithm>
#include <utility>

#include "base/check.h"
#include "graph/ir/rewrite.h"
#include "graph/pass/pass.h"

namespace lumen::graph {

namespace {

class Padder {
 public:
  Padder(const Graph& g, const std::map<std::string, int64_t>& widths)
      : r_(g), widths_(widths), wide_(g.nodes.size(), -1), narrow_(g.nodes.size(), -1) {}

  Graph run() {
    for (ValueId v = 0; v < std::ssize(r_.from.nodes); ++v) {
      if (!visit(v)) keep_narrow(v);
      r_.keep_label(v);
    }
    for (const ValueId v : r_.from.results)
      if (r_.from[v].op != Op::update_) r_.replace(v, narrowed(v));
    return r_.finish();
  }

 private:
  const Node& old(ValueId v) const { return r_.from[v]; }
  int rank(ValueId v) const { return int(old(v).type.shape.size()); }
  Dim width(ValueId v) const { return r_.to[r_[v]].type.shape[wide_[v]]; }
  bool is_wide(ValueId v) const { return wide_[v] >= 0; }

  // The value with the shape that it has in the old graph.
  ValueId narrowed(ValueId v) {
    if (!is_wide(v)) return r_[v];
    if (narrow_[v] < 0) narrow_[v] = r_.build.slice(r_[v], std::vector<int64_t>(rank(v), 0), old(v).type.shape);
    return narrow_[v];
  }

  ValueId padded(ValueId v, int axis, Dim width) {
    Shape shape = old(v).type.shape;
    shape[axis] = width;
    return r_.build.pad(narrowed(v), shape, std::vector<int64_t>(shape.size(), 0));
  }

  void keep_narrow(ValueId v) {
    std::vector<std::pair<ValueId, ValueId>> before;
    for (const ValueId o : old(v).operands) {
      before.emplace_back(o, r_[o]);
      r_.replace(o, narrowed(o));
    }
    (void)r_.keep(v);
    for (size_t i = before.size(); i-- > 0;) r_.replace(before[i].first, before[i].second);
  }

  void widen(ValueId v, ValueId by, int axis) {
    r_.replace(v, by);
    wide_[v] = axis;
  }

  // Whether the node was replaced by one whose result is wide, or that takes wide operands.
  bool visit(ValueId v) {
    const Node& node = old(v);
    if (node.op == Op::input_) return input(v, node);
    if (node.operands.empty()) return false;
    const ValueId a = node.operands[0];
    switch (node.op) {
      case Op::update_:
        return is_wide(a) && update(v, node);
      case Op::contract_:
        return (is_wide(a) || is_wide(node.operands[1])) && contract(v, node);
      case Op::gather_: {
        if (!is_wide(a) || wide_[a] == 0) return false;
        const int axis = rank(node.operands[1]) + wide_[a] - 1;
        widen(v, r_.build.gather(r_[a], narrowed(node.operands[1])), axis);
        return true;
      }
      case Op::permute_: {
        if (!is_wide(a)) return false;
        const std::vector<int>& axes = node.attributes.axes;
        const auto axis = std::find(axes.begin(), axes.end(), wide_[a]) - axes.begin();
        widen(v, r_.build.permute(r_[a], axes), int(axis));
        return true;
      }
      case Op::slice_: {
        if (!is_wide(a)) return false;
        const int axis = wide_[a];
        const Attributes& at = node.attributes;
        if (at.starts[axis] != 0 || at.strides[axis] != 1 || node.type.shape[axis] != old(a).type.shape[axis])
          return false;
        Shape shape = node.type.shape;
        shape[axis] = width(a);
        widen(v, r_.build.slice(r_[a], at.starts, shape, at.strides), axis);
        return true;
      }
      case Op::reshape_: {  // of the axes in front of a last one that stays
        if (!is_wide(a) || wide_[a] != rank(a) - 1 || node.type.shape.empty()) return false;
        if (node.type.shape.back() != old(a).type.shape.back()) return false;
        Shape shape = node.type.shape;
        shape.back() = width(a);
        widen(v, r_.build.reshape(r_[a], shape), int(shape.size()) - 1);
        return true;
      }
      default:
        return false;
    }
  }

  bool input(ValueId v, const Node& node) {
    const auto found = widths_.find(node.attributes.name);
    if (found == widths_.end()) return false;
    LUMEN_CHECK(node.attributes.role == Role::state && !node.type.shape.empty(), "'{}' is no state", found->first);
    Type type = node.type;
    type.shape.back() = Dim(found->second);
    widen(v, r_.build.input(node.attributes.name, node.attributes.role, type), rank(v) - 1);
    return true;
  }

  // Whole rows are written, with their zeros.
  bool update(ValueId v, const Node& node) {
    const ValueId state = node.operands[0], value = node.operands[1];
    LUMEN_CHECK(rank(value) > 0 && old(value).type.shape.back() == old(state).type.shape.back(),
                "a part of a row is written");
    std::vector<ValueId> starts;
    for (size_t i = 2; i < node.operands.size(); ++i) starts.push_back(narrowed(node.operands[i]));
    widen(v, r_.build.update(r_[state], padded(value, rank(value) - 1, width(state)), std::move(starts)), wide_[state]);
    return true;
  }

  bool contract(ValueId v, const Node& node) {
    const std::vector<std::string>& letters = node.attributes.indices;
    ValueId now[2] = {r_[node.operands[0]], r_[node.operands[1]]};
    const auto letter_of = [&](int side) {
      return is_wide(node.operands[side]) ? letters[side][wide_[node.operands[side]]] : '\0';
    };
    const char wide[2] = {letter_of(0), letter_of(1)};
    int axis = -1;
    for (const int side : {0, 1}) {
      if (wide[side] == '\0') continue;
      const ValueId other = node.operands[1 - side];
      const auto there = letters[1 - side].find(wide[side]);
      if (there != std::string::npos && wide[1 - side] != wide[side]) {
        if (wide[1 - side] != '\0') return false;
        now[1 - side] = padded(other, int(there), width(node.operands[side]));
      }
      const auto kept = letters[2].find(wide[side]);
      if (kept == std::string::npos) continue;
      if (axis >= 0 && axis != int(kept)) return false;
      axis = int(kept);
    }
    widen(v, r_.build.contract(now[0], now[1], letters[0], letters[1], letters[2]), axis);
    return true;
  }

  Rewriter r_;
  const std::map<std::string, int64_t>& widths_;
  std::vector<int> wide_;        // by old value: the axis that is longer now; -1: none
  std::vector<ValueId> narrow_;  // by old value: the slice with its old shape, as a new value; -1: not made
};

}  // namespace

void pad_states(Graph& g, const std::map<std::string, int64_t>& widths) {
  if (widths.empty()) return;
  inline_calls(g);
  g = Padder(g, widths).run();
}

}  // namespace lumen::graph
