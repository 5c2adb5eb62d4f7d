// arrange: the first half of fuse; see partition.h. Proved by tests/graph/fuse_test.cpp.
#include "base/check.h"
#include "graph/ir/rewrite.h"
#include "graph/match/access.h"
#include "graph/pass/partition.h"
#include "number/facts/limits.h"

namespace lumen::graph {

namespace {

constexpr size_t kCheap = 16;  // scalar nodes, nested maps included: what is recomputed at every use rather than stored

Formula identity(Scalar type) {
  Formula f;
  f.inputs = {type};
  f.outputs = {f.input(0)};
  return f;
}

class Arranger {
 public:
  explicit Arranger(const Graph& g)
      : r_(g),
        live_(live_values(g)),
        updated_(updates_of(g)),
        last_use_(g.nodes.size(), -1),
        weight_(g.nodes.size(), 0),
        whole_(g.nodes.size(), false) {
    for (const Node& node : g.nodes)
      for (size_t k = 0; k < node.operands.size(); ++k)
        if (node.op != Op::gather_ || k != 0) whole_[node.operands[k]] = true;
    for (const ValueId result : g.results) whole_[result] = true;
    for (ValueId v = g.nodes.size() - 1; v >= 0; --v) {
      if (!live_[v]) continue;
      // A load is read when its user runs, so uses of a view count as uses of what lies below.
      const bool lazy = is_view(g[v].op) || is_unpack(g, v);
      for (ValueId o : g[v].operands) last_use_[o] = std::max(last_use_[o], lazy ? last_use_[v] : v);
    }
  }

  Graph run() {
    for (ValueId v = 0; v < std::ssize(r_.from.nodes); ++v) {
      if (live_[v]) visit(v);
    }
    for (ValueId result : r_.from.results) {
      const ValueId now = r_[result];
      const Op op = r_.to[now].op;
      if (is_view(op) || is_splat(r_.to[now]) || op == Op::iota_ || is_unpack(r_.to, now)) {
        r_.replace(result, copy(now));
      }
    }
    Graph done = r_.finish();
    return drop_dead(done);
  }

 private:
  ValueId copy(ValueId v) { return r_.build.map(identity(r_.build.type(v).element.scalar), {v}); }

  static Graph drop_dead(const Graph& g) {
    Rewriter r(g);
    const std::vector<bool> live = live_values(g);
    for (ValueId v = 0; v < std::ssize(g.nodes); ++v) {
      if (live[v]) r.keep(v);
    }
    return r.finish();
  }

  void visit(ValueId v) {
    const Node& node = r_.from[v];
    if (node.op == Op::iota_) {
      one_axis_iota(v);
    } else if (node.op == Op::cast_ && !node.type.element.format && !is_unpack(r_.from, v)) {
      r_.replace(v, r_.build.convert(r_[node.operands[0]], node.type.element.scalar));
    } else if (is_view(node.op) || is_unpack(r_.from, v)) {
      load(v);
    } else if (node.op == Op::update_) {
      update(v);
    } else if (node.op == Op::map_) {
      map(v);
    } else if (node.op == Op::contract_) {
      contract(v);
    } else if (node.op == Op::contract_scatter_) {
      contract_scatter(v);
    } else {
      r_.keep(v);
    }
    if (r_.to[r_[v]].label.empty()) r_.to[r_[v]].label = node.label;
  }

  void one_axis_iota(ValueId v) {
    const Node& node = r_.from[v];
    const int axis = node.attributes.axis;
    Type narrow = node.type;
    for (size_t d = 0; d < narrow.shape.size(); ++d) {
      if (static_cast<int>(d) != axis) narrow.shape[d] = Dim(1);
    }
    const ValueId line = r_.build.iota(narrow, axis);
    r_.replace(v, narrow == node.type ? line : r_.build.broadcast(line, node.type.shape));
  }

  void load(ValueId v) {
    ValueId kept = r_.keep(v);
    if (!affine_access(r_.to, kept)) {
      r_.to.nodes.pop_back();
      const ValueId dense = copy(r_[r_.from[v].operands[0]]);
      kept = r_.build.reshape(dense, r_.from[v].type.shape);
      r_.replace(v, kept);
    }
    // A state's old value must be read before its update runs; a load would be read by its last user.
    const ValueId state = read_below(r_.from, v);
    const bool late = state >= 0 && updated_[state] >= 0 && last_use_[v] > updated_[state];
    if ((late && read_below(r_.to, kept) == r_[state]) || is_laid_out(v)) r_.replace(v, copy(kept));
  }

  // Blocks that no kernel takes apart in straight code are decoded beforehand, but for rows that are picked.
  bool is_laid_out(ValueId v) const {
    if (!is_unpack(r_.from, v) || !whole_[v]) return false;
    return !unrolls(*r_.from[r_.from[v].operands[0]].type.element.format);
  }

  void update(ValueId v) {
    std::vector<ValueId> operands = r_.operands(v);
    const auto storage = [&](ValueId s) {
      while (s >= 0 && r_.to[s].op == Op::update_) s = r_.to[s].operands[0];
      return s;
    };
    if (storage(read_below(r_.to, operands[1])) == storage(operands[0])) {  // reads what it writes
      operands[1] = copy(operands[1]);
    }
    r_.replace(v, r_.build.update(operands[0], operands[1], {operands.begin() + 2, operands.end()}));
  }

  void map(ValueId v) {
    std::vector<ValueId> operands = r_.operands(v);
    for (size_t i = 0; i < operands.size(); ++i) {
      if (is_free(r_.from[v].operands[i])) operands[i] = clone(r_.from[v].operands[i], r_.from[v].type.shape);
    }
    r_.replace(v, r_.build.map(r_.from[v].attributes.formula, operands));
    weigh(v);
  }

  // What is computed stands first, what is only read second: weights and cached keys are the second operand.
  void contract(ValueId v) {
    Node& node = r_.to[r_.keep(v)];
    if (is_compute(r_.to, node.operands[0]) || !is_compute(r_.to, node.operands[1])) return;
    std::swap(node.operands[0], node.operands[1]);
    std::swap(node.attributes.indices[0], node.attributes.indices[1]);
  }

  // The second factor has the result's last axis, along which kernels store vectors.
  void contract_scatter(ValueId v) {
    Node& node = r_.to[r_.keep(v)];
    std::vector<std::string>& letters = node.attributes.indices;
    if (letters[0].find(letters[3].back()) == std::string::npos) return;
    std::swap(node.operands[0], node.operands[1]);
    std::swap(letters[0], letters[1]);
  }

  // A map of constants, iotas and single numbers, cheaper to compute anew than to read. Its operands were visited
  // before.
  bool is_free(ValueId v) const { return weight_[v] > 0; }

  void weigh(ValueId v) {
    const Node& node = r_.from[v];
    size_t weight = node.attributes.formula.nodes.size();
    if (elements(node.type.shape) == Dim(1)) return;
    for (ValueId o : node.operands) {
      const ValueId below = read_below(r_.from, o);
      weight += weight_[o];
      if (below < 0 || is_free(o)) continue;
      if (elements(r_.from[below].type.shape) != Dim(1) || updated_[below] >= 0) return;
    }
    if (weight <= kCheap) weight_[v] = weight;
  }

  // A free map computed at the shape of its user: one operand is broadcast there, the others follow.
  ValueId clone(ValueId v, const Shape& shape) {
    const Node& node = r_.from[v];
    std::vector<ValueId> operands;
    bool wide = false;
    for (ValueId o : node.operands) {
      operands.push_back(is_free(o) ? clone(o, shape) : r_[o]);
      wide = wide || r_.build.type(operands.back()).shape == shape;
    }
    if (!wide) operands[0] = r_.build.broadcast(operands[0], shape);
    return r_.build.map(node.attributes.formula, std::move(operands));
  }

  Rewriter r_;
  std::vector<bool> live_;
  std::vector<ValueId> updated_;
  std::vector<ValueId> last_use_;  // through loads; ids of the old graph
  std::vector<size_t> weight_;     // of free maps; 0 for all other values
  std::vector<bool> whole_;        // used otherwise than by picking its rows
};

}  // namespace

Graph arrange(const Graph& g) {
  for (const Node& node : g.nodes) {
    LUMEN_CHECK(node.op != Op::call_ && node.op != Op::result_, "fuse wants a graph without calls");
  }
  return Arranger(g).run();
}

}  // namespace lumen::graph
