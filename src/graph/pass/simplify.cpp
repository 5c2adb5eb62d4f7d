// simplify: one sweep rewrites every node by the rules below and shares equal ones, a second removes dead ones;
// repeated to a fixed point. Each rule keeps every bit of the result: sums are never reordered. Proved by
// tests/graph/pass_test.cpp and the texts tests/graph/pass/simplify_*.txt.
#include <algorithm>
#include <bit>
#include <map>

#include "base/check.h"
#include "base/ordinal.h"
#include "graph/ir/eval.h"
#include "graph/ir/rewrite.h"
#include "graph/match/access.h"
#include "graph/match/uses.h"
#include "graph/pass/pass.h"

namespace lumen::graph {

namespace {

constexpr int64_t kMaxFolded = 256;  // elements of a constant made at compile time
constexpr int kMaxSweeps = 16;

bool numeric(const Shape& s) {
  return std::all_of(s.begin(), s.end(), [](const Dim& d) { return d.is_number(); });
}

// Equal keys mean equal values. Labels do not count.
std::string key_of(const Node& n) {
  const Attributes& a = n.attributes;
  std::string key =
      fmt::format("{} {} {} {} {} {} {} {} {} {} {}", ordinal(n.op), print(n.type), fmt::join(n.operands, ","), a.axis,
                  fmt::join(a.axes, ","), ordinal(a.reduction), fmt::join(a.indices, ","), fmt::join(a.starts, ","),
                  fmt::join(a.strides, ","), a.salt, a.index);
  if (n.op == Op::scan_) key += fmt::format(" {} {} {}", a.carries, a.sequences, a.reverse);
  if (n.op == Op::exchange_) key += fmt::format(" {} {}", ordinal(a.moves), a.ranks);
  for (double x : a.data) key += fmt::format(" {}", x);
  for (const auto& [field, source] : a.sources) key += fmt::format(" {}:{}", field, ordinal(source));
  if (n.op == Op::map_) key += " " + print_formula(a.formula);
  if (a.callee) key += fmt::format(" {}", static_cast<const void*>(a.callee.get()));
  return key;
}

class Simplifier {
 public:
  explicit Simplifier(const Graph& g)
      : r_(g), uses_(g.nodes.size(), 0), last_use_(g.nodes.size(), -1), updated_(updates_of(g)) {
    const ValueId count = g.nodes.size();
    for (ValueId v = 0; v < count; ++v) {
      for (ValueId o : g[v].operands) {
        ++uses_[o];
        last_use_[o] = v;
      }
    }
    for (ValueId result : g.results) {
      ++uses_[result];
      last_use_[result] = count;
    }
  }

  Graph run() {
    const std::vector<bool> live = live_values(r_.from);
    for (ValueId v = 0; v < std::ssize(r_.from.nodes); ++v) {
      if (!live[v]) continue;
      const ValueId before = r_.to.nodes.size();
      ValueId now = rewrite(v);
      if (reads_late(v, now, before)) {
        r_.to.nodes.erase(r_.to.nodes.begin() + before, r_.to.nodes.end());
        now = r_.keep(v);
      }
      if (!share(now)) now = shared_;
      r_.replace(v, now);
      if (updated_[v] >= 0) doomed_[now] = updated_[v];
      std::string& label = r_.to[now].label;
      if (label.empty() && r_.to[now].op != Op::input_) label = r_.from[v].label;
    }
    return r_.finish();
  }

 private:
  const Node& node(ValueId v) const { return r_.to[v]; }
  const Shape& shape(ValueId v) const { return r_.to[v].type.shape; }

  // The new value of an old node: an existing value, or a node appended last.
  ValueId rewrite(ValueId v) {
    const Node& old = r_.from[v];
    const std::vector<ValueId> operands = r_.operands(v);
    if (const ValueId folded = fold(old, operands); folded >= 0) return folded;
    switch (old.op) {
      case Op::map_:
        return map(old, operands);
      case Op::contract_:
      case Op::contract_gather_:
      case Op::contract_scatter_:
        return contract(old, operands);
      case Op::reduce_:
        return reduce(old, operands[0]);
      case Op::reshape_:
        return reshape(operands[0], old.type.shape);
      case Op::permute_:
        return permute(operands[0], old.attributes.axes);
      case Op::broadcast_:
        return broadcast(operands[0], old.type.shape);
      case Op::slice_:
        return slice(old, operands[0]);
      case Op::windows_:
        return windows(old, operands[0]);
      case Op::pad_:
        return old.type == r_.build.type(operands[0]) ? operands[0] : r_.keep(v);
      case Op::concat_:
        return concat(v, operands);
      case Op::iota_:  // one of extent 1
        return old.type.shape[old.attributes.axis] == Dim(1) ? splat(old.type.shape, old.type.element, 0) : r_.keep(v);
      case Op::cast_:
        if (old.type == r_.build.type(operands[0])) return operands[0];
        if (!old.type.element.format && !r_.build.type(operands[0]).element.format) {
          return r_.build.convert(operands[0], old.type.element.scalar);
        }
        return r_.keep(v);
      default:
        return r_.keep(v);
    }
  }

  // A view or copy of a state before its update must not become a read of the state after it.
  bool reads_late(ValueId v, ValueId now, ValueId before) const {
    const auto gone = [&](ValueId value, ValueId when) {
      const auto found = doomed_.find(value);
      return found != doomed_.end() && found->second < when;
    };
    if (now < before) return r_.from[v].op != Op::update_ && gone(now, last_use_[v]);
    for (auto fresh = before; fresh < std::ssize(r_.to.nodes); ++fresh) {
      for (ValueId o : node(fresh).operands) {
        if (gone(o, v)) return true;
      }
    }
    return false;
  }

  // Records the node appended last; false (and shared_ set) when an equal one exists, which then replaces it.
  bool share(ValueId now) {
    if (now + 1 != std::ssize(r_.to.nodes) || !op_info(node(now).op).pure) return true;
    const auto [known, fresh] = known_.emplace(key_of(node(now)), now);
    if (fresh || known->second == now) return true;
    shared_ = known->second;
    r_.to.nodes.pop_back();
    return false;
  }

  // --- constants
  ValueId splat(const Shape& s, Element e, double value) { return r_.build.constant({s, e}, {value}); }

  ValueId fold(const Node& old, const std::vector<ValueId>& operands) {
    const bool constants = !operands.empty() && std::all_of(operands.begin(), operands.end(),
                                                            [&](ValueId o) { return node(o).op == Op::constant_; });
    if (!constants || !op_info(old.op).pure || old.type.element.format) return -1;
    if (old.op == Op::call_ || old.op == Op::scan_ || old.op == Op::chunk_ || old.op == Op::exchange_) return -1;
    const bool splats = std::all_of(operands.begin(), operands.end(), [&](ValueId o) { return is_splat(node(o)); });
    const Element e = old.type.element;
    if (splats && is_view(old.op)) return splat(old.type.shape, e, node(operands[0]).attributes.data[0]);
    if (splats && old.op == Op::map_) {
      Graph tiny;
      Builder b(tiny);
      std::vector<ValueId> numbers;
      for (ValueId o : operands) numbers.push_back(b.scalar(node(o).attributes.data[0], node(o).type.element.scalar));
      tiny.results = {b.map(old.attributes.formula, numbers)};
      tiny.result_names = {""};
      return splat(old.type.shape, e, eval(tiny, {})[0].values[0]);
    }
    if (!numeric(old.type.shape) || elements(old.type.shape).coefficient > kMaxFolded) return -1;
    for (ValueId o : operands) {
      if (!numeric(shape(o)) || elements(shape(o)).coefficient > kMaxFolded) return -1;
    }
    if (old.op == Op::gather_ || old.op == Op::scatter_add_ || old.op == Op::contract_gather_ ||
        old.op == Op::contract_scatter_)
      return -1;  // an error at run time must stay one
    Graph tiny;
    Node copy = old;
    copy.operands.clear();
    for (ValueId o : operands) {
      copy.operands.push_back(tiny.nodes.size());
      tiny.nodes.push_back(node(o));
    }
    tiny.nodes.push_back(std::move(copy));
    tiny.results = {static_cast<ValueId>(tiny.nodes.size()) - 1};
    tiny.result_names = {""};
    return r_.build.constant(old.type, eval(tiny, {})[0].values);
  }

  // --- maps
  // Inlines maps among `reads` (old values) that `take` selects; their operands are read instead.
  template <typename Take>
  void compute_in(Formula* f, std::vector<ValueId>* reads, const Take& take) const {
    for (size_t k = 0; k < reads->size();) {
      if (!take(k)) {
        ++k;
        continue;
      }
      const Node& part = r_.from[(*reads)[k]];
      *f = compose(*f, k, part.attributes.formula, 0);
      reads->erase(reads->begin() + k);
      reads->insert(reads->end(), part.operands.begin(), part.operands.end());
    }
  }

  // A map of one use that another map broadcasts at most 4 times is inlined, which is cheaper than a pass over memory:
  // no group contains both.
  bool repeats(const Node& old, ValueId read) const {
    constexpr int64_t kMostTimes = 4;
    constexpr size_t kMaxNodes = 64;
    const Node& part = r_.from[read];
    if (part.op != Op::map_ || uses_[read] != 1 || part.type.shape.size() != old.type.shape.size() ||
        part.attributes.formula.nodes.size() + old.attributes.formula.nodes.size() > kMaxNodes)
      return false;
    int64_t times = 1;
    for (size_t d = 0; d < old.type.shape.size(); ++d) {
      if (part.type.shape[d] == old.type.shape[d]) continue;
      if (part.type.shape[d] != Dim(1) || !old.type.shape[d].is_number()) return false;
      times *= old.type.shape[d].number();
    }
    const bool cheap = std::none_of(
        part.attributes.formula.nodes.begin(), part.attributes.formula.nodes.end(), [](const ScalarNode& n) {
          return n.op == ScalarOp::div_ || n.op == ScalarOp::sqrt_ || n.op == ScalarOp::exp_ ||
                 n.op == ScalarOp::log_ || n.op == ScalarOp::sin_ || n.op == ScalarOp::cos_ ||
                 n.op == ScalarOp::tanh_ || n.op == ScalarOp::pow_;
        });
    return times > 1 && times <= kMostTimes && cheap;
  }

  // A value that is widened, moved and rounded back to its type is moved in that type, so the wide value never passes
  // through memory. Moves whose wide result has other readers are unchanged. -1: the pattern does not match.
  ValueId moved_narrow(const Node& old) {
    if (old.operands.size() != 1 || old.type.element.format) return -1;
    std::vector<ValueId> moves;  // old values, last first
    ValueId v = old.operands[0];
    for (;; v = r_.from[v].operands[0]) {
      const Op op = r_.from[v].op;
      const bool copies = op == Op::pad_ || op == Op::gather_;
      if (!is_view(op) && (!copies || uses_[v] != 1)) break;
      moves.push_back(v);
    }
    const Node& widened = r_.from[v];
    if (widened.op != Op::map_ || widened.operands.size() != 1) return -1;
    const Node& source = r_.from[widened.operands[0]];
    const Formula both = simplify_formula(compose(old.attributes.formula, 0, widened.attributes.formula, 0));
    if (both.nodes[both.outputs[0]].op != ScalarOp::input || source.type.shape != widened.type.shape ||
        r_.from[old.operands[0]].type.shape != old.type.shape || source.type.element.format)
      return -1;
    ValueId narrow = r_[widened.operands[0]];
    for (size_t i = moves.size(); i-- > 0;) {
      const Node& move = r_.from[moves[i]];
      if (move.op == Op::pad_)
        narrow = r_.build.pad(narrow, move.type.shape, move.attributes.starts, move.attributes.strides);
      else
        narrow = move.op == Op::gather_ ? r_.build.gather(narrow, r_[move.operands[1]]) : r_.build.view(move, narrow);
    }
    return narrow;
  }

  ValueId map(const Node& old, std::vector<ValueId> operands) {
    if (const ValueId narrow = moved_narrow(old); narrow >= 0) return narrow;
    Formula f = old.attributes.formula;
    std::vector<ValueId> reads = old.operands;
    const size_t own = reads.size();
    compute_in(&f, &reads, [&](size_t k) { return k < own && repeats(old, reads[k]); });
    if (reads != old.operands) {
      operands.clear();
      for (const ValueId read : reads) operands.push_back(r_[read]);
    }
    const auto stretched = [&](const std::vector<ValueId>& of) {  // the shape these operands broadcast to
      Shape s;
      for (ValueId o : of) {
        if (shape(o).size() > s.size()) s.insert(s.begin(), shape(o).size() - s.size(), Dim(1));
        for (size_t d = 0; d < shape(o).size(); ++d) {
          Dim& out = s[d + s.size() - shape(o).size()];
          if (out == Dim(1)) out = shape(o)[d];
        }
      }
      return s;
    };
    const auto without = [&](size_t i) {
      std::vector<ValueId> rest = operands;
      rest.erase(rest.begin() + i);
      return rest;
    };
    for (size_t i = operands.size(); i-- > 0;) {
      // A broadcast that the other operands imply.
      while (node(operands[i]).op == Op::broadcast_) {
        std::vector<ValueId> narrow = operands;
        narrow[i] = node(operands[i]).operands[0];
        if (stretched(narrow) != old.type.shape) break;
        operands = narrow;
      }
      if (operands.size() == 1 || stretched(without(i)) != old.type.shape) continue;
      // A splat becomes a constant of the formula.
      if (is_splat(node(operands[i]))) {
        f = compose(f, i, constant_formula(node(operands[i])), 0);
        operands = without(i);
        continue;
      }
      // The same operand twice is read once.
      const auto first = std::find(operands.begin(), operands.begin() + i, operands[i]) - operands.begin();
      if (first < static_cast<int64_t>(i)) {
        f = with_shared_input(f, first, i);
        operands = without(i);
      }
    }
    f = simplify_formula(f);
    for (size_t i = operands.size(); i-- > 0 && operands.size() > 1;) {
      const bool used = std::any_of(f.nodes.begin(), f.nodes.end(), [&](const ScalarNode& n) {
        return n.op == ScalarOp::input && n.index == static_cast<int>(i);
      });
      if (used || stretched(without(i)) != old.type.shape) continue;
      f = without_input(f, i);
      operands = without(i);
    }
    const bool identity =
        f.nodes[f.outputs[0]].op == ScalarOp::input && shape(operands[f.nodes[f.outputs[0]].index]) == old.type.shape;
    if (identity) return operands[f.nodes[f.outputs[0]].index];
    return r_.build.map(std::move(f), std::move(operands));
  }

  static Formula constant_formula(const Node& splat_node) {
    Formula f;
    const Scalar type = splat_node.type.element.scalar;
    const double x = splat_node.attributes.data[0];
    f.outputs = {is_float(type) ? f.constant(type, x) : f.integer(type, static_cast<int64_t>(x))};
    return f;
  }

  static Formula without_input(Formula f, int unused) {
    f.inputs.erase(f.inputs.begin() + unused);
    for (ScalarNode& n : f.nodes) n.index -= n.op == ScalarOp::input && n.index > unused ? 1 : 0;
    return f;
  }

  // Input `twin` of f becomes input `first`; later inputs move up.
  static Formula with_shared_input(Formula f, int first, int twin) {
    f.inputs.erase(f.inputs.begin() + twin);
    for (ScalarNode& n : f.nodes) {
      if (n.op != ScalarOp::input || n.index < twin) continue;
      n.index = n.index == twin ? first : n.index - 1;
    }
    return f;
  }

  // --- contract: permutes of operands become letters in another order
  ValueId contract(const Node& old, std::vector<ValueId> operands) {
    std::vector<std::string> letters = old.attributes.indices;
    for (size_t i = 0; i < operands.size(); ++i) {
      if (old.op == Op::contract_gather_ && i > 0) break;  // the order of their axes is the result's
      while (node(operands[i]).op == Op::permute_) {
        const std::vector<int>& axes = node(operands[i]).attributes.axes;
        std::string below(axes.size(), ' ');
        for (size_t d = 0; d < axes.size(); ++d) below[axes[d]] = letters[i][d];
        letters[i] = below;
        operands[i] = node(operands[i]).operands[0];
      }
    }
    if (old.op == Op::contract_) return r_.build.contract(operands[0], operands[1], letters[0], letters[1], letters[2]);
    if (old.op == Op::contract_gather_)
      return r_.build.contract_gather(operands[0], operands[1], operands[2], letters[0], letters[1], letters[2]);
    return r_.build.contract_scatter(operands[0], operands[1], operands[2], letters[0], letters[1], letters[2],
                                     letters[3], old.type.shape[0]);
  }

  ValueId reduce(const Node& old, ValueId a) {
    std::vector<int> axes;
    for (int axis : old.attributes.axes) {
      if (shape(a)[axis] != Dim(1)) axes.push_back(axis);
    }
    return axes.empty() ? a : r_.build.reduce(a, old.attributes.reduction, axes);
  }

  // Parts of extent 1 are concatenated by a map that selects by the index along the axis; parts that are maps are
  // inlined. One pass over memory instead of one per part and another to join them.
  ValueId concat(ValueId v, const std::vector<ValueId>& operands) {
    constexpr size_t kMaxParts = 4, kMaxNodes = 64;
    const Node& old = r_.from[v];
    const int axis = old.attributes.axis;
    if (operands.size() == 1) return operands[0];
    const bool units =
        std::all_of(operands.begin(), operands.end(), [&](ValueId o) { return shape(o)[axis] == Dim(1); });
    if (!units || operands.size() > kMaxParts) return r_.keep(v);
    Shape line(old.type.shape.size(), Dim(1));
    line[axis] = old.type.shape[axis];
    Formula f;
    f.inputs.assign(operands.size(), old.type.element.scalar);
    f.inputs.push_back(Scalar::i32);
    const int place = f.input(operands.size());
    int picked = f.input(operands.size() - 1);
    for (size_t k = operands.size() - 1; k-- > 0;) {
      const int here = f.op(ScalarOp::eq_, place, f.integer(Scalar::i32, k));
      picked = f.op(ScalarOp::select_, here, f.input(k), picked);
    }
    f.outputs = {picked};
    std::vector<ValueId> reads = old.operands;  // old values; -1 represents the index along the axis
    reads.push_back(-1);
    compute_in(&f, &reads, [&](size_t k) {
      return reads[k] >= 0 && r_.from[reads[k]].op == Op::map_ && uses_[reads[k]] == 1 &&
             r_.from[reads[k]].type.shape == r_.from[old.operands[0]].type.shape &&
             f.nodes.size() + r_.from[reads[k]].attributes.formula.nodes.size() <= kMaxNodes;
    });
    const ValueId index = r_.build.iota({line, {Scalar::i32, nullptr}}, axis);
    std::vector<ValueId> values;
    for (ValueId read : reads) values.push_back(read < 0 ? index : r_[read]);
    return r_.build.map(simplify_formula(f), std::move(values));
  }

  // --- views
  ValueId reshape(ValueId a, const Shape& to) {
    while (node(a).op == Op::reshape_) a = node(a).operands[0];
    return shape(a) == to ? a : r_.build.reshape(a, to);
  }

  ValueId permute(ValueId a, std::vector<int> axes) {
    while (node(a).op == Op::permute_) {
      for (int& axis : axes) axis = node(a).attributes.axes[axis];
      a = node(a).operands[0];
    }
    std::vector<int> moving;  // axes that hold more than one element, in the new order
    for (int axis : axes) {
      if (shape(a)[axis] != Dim(1)) moving.push_back(axis);
    }
    if (!std::is_sorted(moving.begin(), moving.end())) return r_.build.permute(a, axes);
    Shape to;
    for (int axis : axes) to.push_back(shape(a)[axis]);
    return reshape(a, to);
  }

  ValueId broadcast(ValueId a, const Shape& to) {
    while (node(a).op == Op::broadcast_) a = node(a).operands[0];
    return shape(a) == to ? a : r_.build.broadcast(a, to);
  }

  ValueId slice(const Node& old, ValueId a) {
    std::vector<int64_t> starts = old.attributes.starts, strides = old.attributes.strides;
    while (node(a).op == Op::slice_) {
      const Attributes& below = node(a).attributes;
      for (size_t d = 0; d < starts.size(); ++d) {
        starts[d] = below.starts[d] + starts[d] * below.strides[d];
        strides[d] *= below.strides[d];
      }
      a = node(a).operands[0];
    }
    return shape(a) == old.type.shape ? a : r_.build.slice(a, starts, old.type.shape, strides);
  }

  // Slices, permutes and other windows below windows become part of the subscripts. Windows that read each axis by an
  // index of its own (other axes have extent 1) become a slice of a permute.
  ValueId windows(const Node& old, ValueId a) {
    std::vector<int64_t> starts = old.attributes.starts, strides = old.attributes.strides;
    const size_t rank = old.type.shape.size();
    for (;; a = node(a).operands[0]) {
      const Node& below = node(a);
      const size_t inner = below.type.shape.size();
      if (below.op != Op::slice_ && below.op != Op::permute_ && below.op != Op::windows_) break;
      const size_t count = shape(below.operands[0]).size();
      std::vector<int64_t> new_starts(count), new_strides(count * rank);
      for (size_t d = 0; d < count; ++d) {
        const auto move = [&](size_t e, int64_t by) {
          new_starts[d] += by * starts[e];
          for (size_t j = 0; j < rank; ++j) new_strides[d * rank + j] += by * strides[e * rank + j];
        };
        if (below.op == Op::slice_) {
          new_starts[d] = below.attributes.starts[d];
          move(d, below.attributes.strides[d]);
        } else if (below.op == Op::permute_) {
          const auto& axes = below.attributes.axes;
          move(std::find(axes.begin(), axes.end(), d) - axes.begin(), 1);
        } else {
          new_starts[d] = below.attributes.starts[d];
          for (size_t e = 0; e < inner; ++e) move(e, below.attributes.strides[d * inner + e]);
        }
      }
      starts = std::move(new_starts);
      strides = std::move(new_strides);
    }
    if (const auto axes = one_by_one(old.type.shape, strides, shape(a).size())) {
      std::vector<int64_t> by;
      Shape sizes;
      for (size_t d = 0; d < starts.size(); ++d) {
        const int j = std::find(axes->begin(), axes->end(), d) - axes->begin();
        by.push_back(std::max<int64_t>(strides[d * rank + j], 1));
        sizes.push_back(old.type.shape[j]);
      }
      Node cut{Op::slice_, {sizes, old.type.element}, {a}, {}, {}};
      cut.attributes.starts = starts;
      cut.attributes.strides = by;
      return permute(slice(cut, a), *axes);
    }
    return r_.build.windows(a, starts, strides, old.type.shape);
  }

  // By index of the windows: the one axis it reads alone. nullopt if there are fewer indices than axes, one axis is
  // read by several indices, or several axes by one.
  static std::optional<std::vector<int>> one_by_one(const Shape& to, const std::vector<int64_t>& strides,
                                                    size_t count) {
    const size_t rank = to.size();
    if (count != rank) return std::nullopt;
    std::vector<int> axes(rank, -1);
    std::vector<bool> taken(count);
    for (size_t d = 0; d < count; ++d)
      for (size_t j = 0; j < rank; ++j) {
        if (strides[d * rank + j] == 0) continue;
        if (axes[j] >= 0 || taken[d]) return std::nullopt;
        axes[j] = d;
        taken[d] = true;
      }
    for (size_t j = 0; j < rank; ++j) {  // indices that read no axis have extent 1, and take any axis left
      if (axes[j] >= 0) continue;
      if (to[j] != Dim(1)) return std::nullopt;
      const auto left = std::find(taken.begin(), taken.end(), false) - taken.begin();
      axes[j] = left;
      taken[left] = true;
    }
    return axes;
  }

  Rewriter r_;
  std::vector<int> uses_;          // of old values
  std::vector<ValueId> last_use_;  // of old values: the last node that reads them, or the number of nodes for results
  std::vector<ValueId> updated_;   // of old values: the update that ends them, or -1
  std::map<ValueId, ValueId> doomed_;  // new states and parameters -> the old number of the update that overwrites them
  std::map<std::string, ValueId> known_;
  ValueId shared_ = -1;
};

bool same(const Node& a, const Node& b) {
  const Attributes &x = a.attributes, &y = b.attributes;
  const auto bits = [](double p, double q) { return std::bit_cast<uint64_t>(p) == std::bit_cast<uint64_t>(q); };
  return a.op == b.op && a.operands == b.operands && a.type == b.type && x.name == y.name && x.role == y.role &&
         std::equal(x.data.begin(), x.data.end(), y.data.begin(), y.data.end(), bits) && x.axis == y.axis &&
         x.axes == y.axes && x.reduction == y.reduction && x.formula == y.formula && x.indices == y.indices &&
         x.starts == y.starts && x.strides == y.strides && x.sources == y.sources && x.salt == y.salt &&
         x.callee == y.callee && x.carries == y.carries && x.sequences == y.sequences && x.reverse == y.reverse &&
         x.index == y.index;
}

bool same(const Graph& a, const Graph& b) {
  return a.results == b.results && std::equal(a.nodes.begin(), a.nodes.end(), b.nodes.begin(), b.nodes.end(),
                                              [](const Node& x, const Node& y) { return same(x, y); });
}

}  // namespace

void simplify(Graph& g) {
  for (Node& node : g.nodes) {
    if (node.op != Op::scan_) continue;
    Graph body = *node.attributes.callee;
    simplify(body);
    if (!same(body, *node.attributes.callee)) node.attributes.callee = std::make_shared<const Graph>(std::move(body));
  }
  for (int sweep = 0; sweep < kMaxSweeps; ++sweep) {
    Graph next = Simplifier(g).run();
    const bool done = same(g, next);
    g = std::move(next);
    if (done) return;
  }
}

}  // namespace lumen::graph
