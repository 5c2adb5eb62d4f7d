// Values are visited in reverse order, so that all readers of a value have requested their sections of its axis before.
#include "graph/partition/closure.h"

#include <algorithm>
#include <numeric>

#include "base/check.h"

namespace lumen::graph {

namespace {

constexpr size_t kMostInputs = 32;  // a longer search is no pair of products

// Sections of one axis by their starts.
struct Wanted {
  int axis = 0;
  std::map<int64_t, int64_t> sections;
};

class ClosureFinder {
 public:
  ClosureFinder(const Graph& g, const Users& users, int ranks) : g_(g), users_(users), ranks_(ranks) {}

  std::optional<Closure> run(ValueId operand, const Split& split) {
    want(operand, split.axis, split.sections);
    while (!wanted_.empty() && !failed_) {
      const auto last = std::prev(wanted_.end());
      const ValueId v = last->first;
      const Wanted w = std::move(last->second);
      wanted_.erase(last);
      const std::optional<Split> whole = joined(v, w);
      if (!whole) return std::nullopt;
      count_reductions(v, *whole);
      visit(v, *whole);
    }
    if (failed_) return std::nullopt;
    return std::move(out_);
  }

 private:
  const Shape& shape(ValueId v) const { return g_[v].type.shape; }

  void want(ValueId v, int axis, const std::vector<int64_t>& sections, int64_t start = 0) {
    Wanted& w = wanted_.try_emplace(v, Wanted{axis, {}}).first->second;
    failed_ = failed_ || w.axis != axis;
    for (const int64_t s : sections) {
      const auto [at, fresh] = w.sections.try_emplace(start, s);
      failed_ = failed_ || (!fresh && at->second != s);
      start += s;
    }
  }

  // The sections that readers have requested, if they cover the axis.
  std::optional<Split> joined(ValueId v, const Wanted& w) {
    Split out{w.axis, {}};
    int64_t at = 0;
    for (const auto& [start, extent] : w.sections) {
      if (start != at) return std::nullopt;
      out.sections.push_back(extent);
      at += extent;
      if (extent % ranks_ != 0) out_.undivided = extent;
    }
    return at == shape(v)[w.axis].number() ? std::optional(out) : std::nullopt;
  }

  void count_reductions(ValueId v, const Split& split) {
    for (const ValueId u : users_[v]) {
      if (u < 0 || g_[u].op != Op::reduce_) continue;
      const std::vector<int>& axes = g_[u].attributes.axes;
      out_.inner += std::find(axes.begin(), axes.end(), split.axis) != axes.end() ? 1 : 0;
    }
  }

  // An operand that broadcasts: requests its axis, if it has one.
  void want_stretched(ValueId operand, ValueId v, const Split& split) {
    const int axis = split.axis + std::ssize(shape(operand)) - std::ssize(shape(v));
    if (axis >= 0 && shape(operand)[axis] == shape(v)[split.axis]) want(operand, axis, split.sections);
  }

  void visit(ValueId v, const Split& split) {
    const Node& node = g_[v];
    switch (node.op) {
      case Op::input_:
        if (node.attributes.role == Role::parameter) add(v, split);
        return;
      case Op::constant_:
      case Op::iota_:
      case Op::random_:
        return;
      case Op::map_:
        for (const ValueId o : node.operands) want_stretched(o, v, split);
        return;
      case Op::broadcast_:
        return want_stretched(node.operands[0], v, split);
      case Op::cast_:
      case Op::reduce_:
        return want(node.operands[0], split.axis, split.sections);
      case Op::permute_:
        return want(node.operands[0], node.attributes.axes[split.axis], split.sections);
      case Op::reshape_:
        return reshape(node, split);
      case Op::slice_:
        return slice(v, split);
      case Op::concat_:
        return concat(node, split);
      case Op::contract_:
      case Op::contract_gather_:
        return contract(node, split);
      case Op::gather_:
        return gather(node, split);
      default:
        failed_ = true;
    }
  }

  void add(ValueId v, const Split& split) {
    const auto [at, fresh] = out_.inputs.try_emplace(g_[v].attributes.name, split);
    failed_ = failed_ || (!fresh && !(at->second == split)) || out_.inputs.size() > kMostInputs;
  }

  void reshape(const Node& node, const Split& split) {
    const auto before = through_reshape(node.type.shape, split, shape(node.operands[0]), ranks_);
    if (!before) {
      failed_ = true;
      return;
    }
    want(node.operands[0], before->split.axis, before->split.sections);
  }

  void slice(ValueId v, const Split& split) {
    const Node& node = g_[v];
    const ValueId a = node.operands[0];
    const int axis = split.axis;
    const bool dense = node.attributes.strides.empty() || node.attributes.strides[axis] == 1;
    failed_ = failed_ || !dense;
    want(a, axis, split.sections, node.attributes.starts[axis]);
  }

  void concat(const Node& node, const Split& split) {
    int64_t start = 0;
    for (const ValueId o : node.operands) {
      if (split.axis != node.attributes.axis) {
        want(o, split.axis, split.sections);
        continue;
      }
      const int64_t extent = shape(o)[split.axis].number();
      const auto own = sections_in(split.sections, start, extent);
      failed_ = failed_ || !own;
      if (own) want(o, split.axis, *own);
      start += extent;
    }
  }

  void contract(const Node& node, const Split& split) {
    const char letter = node.attributes.indices.back()[split.axis];
    for (size_t i = 0; i < node.operands.size(); ++i) {
      const std::string& letters = node.attributes.indices[i];
      if (letters.find(letter) == std::string::npos) continue;
      const int at = letters.find(letter);
      const ValueId o = node.operands[i];
      const bool is_index = i == 2, is_picked = node.op == Op::contract_gather_ && i == 1 && at == 0;
      failed_ = failed_ || is_picked || is_index;
      if (is_weight_like(o)) ++out_.rows;
      want(o, at, split.sections);
    }
  }
  bool is_weight_like(ValueId v) const {
    return g_[v].op == Op::input_ && g_[v].attributes.role == Role::parameter && shape(v).size() >= 2;
  }

  // Columns of a table do not depend on which rows are gathered.
  void gather(const Node& node, const Split& split) {
    failed_ = failed_ || split.axis >= std::ssize(shape(node.operands[1]));
    if (!failed_) want(node.operands[1], split.axis, split.sections);
  }

  const Graph& g_;
  const Users& users_;
  int ranks_;
  std::map<ValueId, Wanted> wanted_;
  Closure out_;
  bool failed_ = false;
};

}  // namespace

std::optional<Closure> closure_of(const Graph& g, const Users& users, ValueId operand, const Split& split, int ranks) {
  return ClosureFinder(g, users, ranks).run(operand, split);
}

}  // namespace lumen::graph
