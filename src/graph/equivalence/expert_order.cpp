#include "graph/equivalence/expert_order.h"

#include <algorithm>
#include <set>

#include "graph/match/access.h"

namespace lumen::graph {
namespace {

constexpr int kMostRounds = 64;  // each finds one more parameter

// The effect of a permutation of the experts on a value.
struct Kind {
  int64_t axis = -1;    // that runs along the experts: elements along it are permuted
  bool number = false;  // elements are numbers of experts
  bool stays() const { return axis < 0 && !number; }
  friend bool operator==(const Kind&, const Kind&) = default;
};

// The same for a value of a formula, whose axis is the map's.
enum class Sort : uint8_t { stays, moves, number, moving_number, beyond };  // beyond: larger than all numbers

bool is_number(Sort s) {
  return s == Sort::number || s == Sort::moving_number;
}
bool moves(Sort s) {
  return s == Sort::moves || s == Sort::moving_number;
}

class Finder {
 public:
  Finder(const Graph& g, const std::vector<std::string>& weights) : g_(g) {
    for (const std::string& name : weights) {
      const ValueId w = g.find_input(name);
      if (w < 0) continue;
      along_.insert(w);
      stacked_.insert(w);
      experts_ = g[w].type.shape[0];
    }
  }

  std::optional<std::vector<std::string>> run() {
    for (int round = 0; round < kMostRounds && !along_.empty(); ++round) {
      const size_t known = along_.size();
      if (pass()) {
        std::vector<std::string> out;
        for (const ValueId v : along_)
          if (!stacked_.contains(v)) out.push_back(g_[v].attributes.name);
        return out;
      }
      if (along_.size() == known) break;
    }
    return std::nullopt;
  }

 private:
  // Forward. False on a mismatch: then either a parameter was found, or no solution exists.
  bool pass() {
    kinds_.assign(g_.nodes.size(), {});
    for (ValueId v = 0; v < std::ssize(g_.nodes); ++v) {
      const std::optional<Kind> kind = kind_of(v);
      if (!kind) return false;
      kinds_[v] = *kind;
    }
    return std::ranges::all_of(g_.results, [&](ValueId r) { return kinds_[r].stays(); });
  }

  static int64_t axis_of(const std::string& letters, char c) {
    const size_t at = letters.find(c);
    return at == std::string::npos ? -1 : int64_t(at);
  }
  const Kind& operand(const Node& n, size_t i) const { return kinds_[n.operands[i]]; }
  int64_t rank(ValueId v) const { return std::ssize(g_[v].type.shape); }

  std::optional<Kind> kind_of(ValueId v) {
    const Node& n = g_[v];
    if (n.op == Op::input_) return along_.contains(v) ? Kind{0, false} : Kind{};
    if (std::ranges::all_of(n.operands, [&](ValueId o) { return kinds_[o].stays(); })) return Kind{};
    switch (n.op) {
      case Op::map_:
        return of_map(v);
      case Op::contract_:
        return of_product(n);
      case Op::contract_gather_:
        return operand(n, 0).stays() ? of_picked(n, 1, 2) : std::nullopt;
      case Op::gather_:
        return of_picked(n, 0, 1);
      case Op::reduce_:
        return of_reduction(v);
      case Op::reshape_:
      case Op::permute_:
      case Op::broadcast_:
      case Op::slice_:
      case Op::cast_:
        return of_view(v);
      case Op::concat_:
        return of_concat(n);
      default:
        return std::nullopt;
    }
  }

  std::optional<Kind> of_product(const Node& n) {
    const std::vector<std::string>& i = n.attributes.indices;
    for (const int side : {0, 1}) {
      const Kind& kind = operand(n, side);
      if (kind.number) return std::nullopt;
      if (kind.axis < 0) continue;
      const char c = i[side][kind.axis];
      if (const int64_t other = axis_of(i[1 - side], c); other >= 0) {
        if (operand(n, 1 - side).stays()) want_axis(n.operands[1 - side], other);
        if (operand(n, 1 - side).axis != other) return std::nullopt;
      } else if (!operand(n, 1 - side).stays()) {
        return std::nullopt;
      }
      return Kind{axis_of(i[2], c), false};
    }
    return std::nullopt;
  }

  // Elements that integers select along a table's first axis.
  std::optional<Kind> of_picked(const Node& n, size_t table, size_t index) {
    const Kind &of = operand(n, table), &by = operand(n, index);
    if (of.number || by.axis >= 0) return std::nullopt;
    if (of.axis == 0 && by.number) return Kind{};
    if (of.axis == 0) want_number(n.operands[index]);
    if (of.axis < 0 && by.number) want_axis(n.operands[table], 0);
    if (of.axis <= 0 || by.number || n.op != Op::gather_) return std::nullopt;
    return Kind{rank(n.operands[index]) + of.axis - 1, false};
  }

  std::optional<Kind> of_reduction(ValueId v) {
    const Node& n = g_[v];
    Kind kind = operand(n, 0);
    const bool gone = std::ranges::find(n.attributes.axes, kind.axis) != n.attributes.axes.end();
    if (kind.number) {
      // The one expert that is left of a choice.
      if (!gone || n.attributes.axes.size() != 1 || n.attributes.reduction == Reduction::sum) return std::nullopt;
    }
    if (gone) kind.axis = -1;
    return kind;
  }

  std::optional<Kind> of_view(ValueId v) {
    const Node& n = g_[v];
    const ValueId o = n.operands[0];
    Kind kind = kinds_[o];
    if (kind.axis < 0) return kind;
    if (n.op == Op::permute_) kind.axis = std::ranges::find(n.attributes.axes, kind.axis) - n.attributes.axes.begin();
    if (n.op == Op::broadcast_) kind.axis += rank(v) - rank(o);
    if (n.op == Op::reshape_) kind.axis = same_axis(o, kind.axis, v);
    if (kind.axis < 0 || g_[v].type.shape[kind.axis] != experts_) return std::nullopt;
    return kind;
  }

  std::optional<Kind> of_concat(const Node& n) {
    const auto marked = std::ranges::find_if(n.operands, [&](ValueId o) { return !kinds_[o].stays(); });
    const Kind kind = kinds_[*marked];
    for (const ValueId o : n.operands) {
      if (kinds_[o] == kind) continue;
      if (kind.number)
        want_number(o);
      else
        want_axis(o, kind.axis);
      return std::nullopt;
    }
    return kind.axis == n.attributes.axis ? std::nullopt : std::optional(kind);
  }

  // The axis of `to` that corresponds to an axis of `from`, for two shapes of the same elements; -1: none.
  int64_t same_axis(ValueId from, int64_t axis, ValueId to) const {
    const auto behind = [&](ValueId v, size_t at) {
      int64_t count = 1;
      const Shape& shape = g_[v].type.shape;
      for (size_t d = at + 1; d < shape.size(); ++d) count = shape[d].is_number() ? count * shape[d].number() : -1;
      return count;
    };
    const int64_t after = behind(from, axis);
    for (int64_t d = 0; after > 0 && d < rank(to); ++d)
      if (g_[to].type.shape[d] == g_[from].type.shape[axis] && behind(to, d) == after) return d;
    return -1;
  }

  // The axis of an operand that corresponds to a map's axis, or -1: it has none, or extent 1 along it.
  int64_t own_axis(ValueId map, ValueId o, int64_t axis) const {
    const int64_t own = axis - (rank(map) - rank(o));
    return own >= 0 && g_[o].type.shape[own] != Dim(1) ? own : -1;
  }
  bool is_iota_along(ValueId o, int64_t axis) const { return g_[o].op == Op::iota_ && g_[o].attributes.axis == axis; }
  // Whether all elements along an axis are the same.
  bool is_even(ValueId o, int64_t axis) const {
    if (is_splat(g_[o])) return true;
    if (g_[o].op != Op::broadcast_) return false;
    const ValueId from = g_[o].operands[0];
    const int64_t own = axis - (rank(o) - rank(from));
    return own < 0 || g_[from].type.shape[own] == Dim(1);
  }

  std::optional<Kind> of_map(ValueId v) {
    const Node& n = g_[v];
    int64_t axis = -1;
    for (const ValueId o : n.operands) {
      if (kinds_[o].axis < 0) continue;
      const int64_t here = kinds_[o].axis + rank(v) - rank(o);
      if (axis >= 0 && axis != here) return std::nullopt;
      axis = here;
    }
    // Expert numbers compared with all numbers (an iota), one by one.
    for (const ValueId o : n.operands)
      if (axis < 0 && g_[o].op == Op::iota_ && g_[o].type.shape[g_[o].attributes.axis] == experts_)
        axis = g_[o].attributes.axis + rank(v) - rank(o);
    std::vector<Sort> inputs;
    for (const ValueId o : n.operands) {
      const int64_t own = axis < 0 ? -1 : own_axis(v, o, axis);
      const Kind& kind = kinds_[o];
      if (kind.number && kind.axis < 0 && own >= 0 && !is_even(o, own)) return std::nullopt;
      if (!kind.stays()) {
        inputs.push_back(kind.number ? kind.axis >= 0 ? Sort::moving_number : Sort::number : Sort::moves);
      } else if (own < 0 || is_even(o, own)) {
        inputs.push_back(Sort::stays);
      } else if (is_iota_along(o, own)) {
        inputs.push_back(Sort::moving_number);
      } else {
        want_axis(o, own);
        return std::nullopt;
      }
    }
    std::vector<Sort> sorts;
    const Formula& f = n.attributes.formula;
    for (const ScalarNode& node : f.nodes) {
      const std::optional<Sort> sort = sort_of(node, sorts, inputs);
      if (!sort) return std::nullopt;
      sorts.push_back(*sort);
    }
    const Sort out = sorts[f.outputs[0]];
    return Kind{moves(out) ? axis : -1, is_number(out)};
  }

  std::optional<Sort> sort_of(const ScalarNode& n, const std::vector<Sort>& sorts, const std::vector<Sort>& inputs) {
    if (n.op == ScalarOp::input) return inputs[n.index];
    if (n.op == ScalarOp::constant) {
      const bool beyond = !is_float(n.type) && experts_.is_number() && n.integer >= experts_.number();
      return beyond ? Sort::beyond : Sort::stays;
    }
    std::vector<Sort> args;
    for (const int a : n.args)
      if (a >= 0) args.push_back(sorts[a]);
    const auto any = [&](bool (*is)(Sort)) { return std::ranges::any_of(args, is); };
    const Sort plain = any(moves) ? Sort::moves : Sort::stays;
    if (!any(is_number)) return plain;
    if (n.op == ScalarOp::eq_ || n.op == ScalarOp::ne_)
      return std::ranges::all_of(args, is_number) ? std::optional(plain) : std::nullopt;
    if (n.op == ScalarOp::cast_ && !is_float(n.type)) return args[0];
    if (n.op != ScalarOp::select_ || is_number(args[0])) return std::nullopt;
    for (const Sort s : {args[1], args[2]})
      if (!is_number(s) && s != Sort::beyond) return std::nullopt;
    return any(moves) ? Sort::moving_number : Sort::number;
  }

  // Backward: finds a parameter that makes this value permute along an axis, or name experts.
  void want_axis(ValueId v, int64_t axis) {
    const Node& n = g_[v];
    if (!kinds_[v].stays() || g_[v].type.shape[axis] != experts_) return;
    switch (n.op) {
      case Op::input_:
        if (n.attributes.role == Role::parameter && axis == 0) along_.insert(v);
        return;
      case Op::map_:
        for (const ValueId o : n.operands)
          if (const int64_t own = own_axis(v, o, axis); own >= 0 && !is_even(o, own)) want_axis(o, own);
        return;
      case Op::contract_: {
        const char c = n.attributes.indices[2][axis];
        for (const int side : {0, 1})
          if (const int64_t at = axis_of(n.attributes.indices[side], c); at >= 0) want_axis(n.operands[side], at);
        return;
      }
      case Op::reshape_:
        if (const int64_t own = same_axis(v, axis, n.operands[0]); own >= 0) want_axis(n.operands[0], own);
        return;
      case Op::permute_:
        return want_axis(n.operands[0], n.attributes.axes[axis]);
      case Op::broadcast_:
        if (const int64_t own = own_axis(v, n.operands[0], axis); own >= 0) want_axis(n.operands[0], own);
        return;
      case Op::reduce_:
      case Op::slice_:
      case Op::cast_:
        return want_axis(n.operands[0], axis);
      default:
        return;
    }
  }

  void want_number(ValueId v) {
    const Node& n = g_[v];
    if (!kinds_[v].stays()) return;
    switch (n.op) {
      case Op::reduce_:
        // The selected numbers: those along the axis where a condition holds.
        for (const int64_t axis : n.attributes.axes) want_axis(n.operands[0], axis);
        return;
      case Op::concat_:
      case Op::reshape_:
      case Op::permute_:
      case Op::broadcast_:
      case Op::slice_:
      case Op::cast_:
      case Op::map_:
        for (const ValueId o : n.operands) want_number(o);
        return;
      default:
        return;
    }
  }

  const Graph& g_;
  Dim experts_ = Dim(1);
  std::set<ValueId> along_, stacked_;  // inputs whose first axis runs along the experts
  std::vector<Kind> kinds_;
};

}  // namespace

std::optional<std::vector<std::string>> expert_order(const Graph& g, const std::vector<std::string>& weights) {
  return Finder(g, weights).run();
}

}  // namespace lumen::graph
