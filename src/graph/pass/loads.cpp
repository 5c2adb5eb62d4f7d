// copy_loads: values that no kernel can read in place are copied by a map whose formula returns its input: values below
// a view that strides cannot express, a state's old value that is read after its update, the value of an update that
// reads what it writes, blocks that cannot be decoded in unrolled code, a view that is sent to other ranks or iterated
// step by step. Results that would be loads are copied, too. Proved by tests/graph/pass/copy_loads.txt and
// tests/graph/fuse_test.cpp.
#include "base/check.h"
#include "graph/ir/rewrite.h"
#include "graph/match/access.h"
#include "graph/match/uses.h"
#include "graph/pass/pass.h"
#include "number/facts/limits.h"

namespace lumen::graph {

namespace {

Formula identity(Scalar type) {
  Formula f;
  f.inputs = {type};
  f.outputs = {f.input(0)};
  return f;
}

class Copier {
 public:
  explicit Copier(const Graph& g)
      : r_(g), updated_(updates_of(g)), last_use_(g.nodes.size(), -1), whole_(g.nodes.size(), false) {
    for (const Node& node : g.nodes) {
      LUMEN_CHECK(node.op != Op::call_, "loads of a graph with calls");
      for (size_t k = 0; k < node.operands.size(); ++k)
        if (node.op != Op::gather_ || k != 0) whole_[node.operands[k]] = true;
    }
    for (const ValueId result : g.results) whole_[result] = true;
    for (ValueId v = g.nodes.size() - 1; v >= 0; --v) {
      // A load is read when its user runs, so uses of a view count as uses of the value below.
      const bool lazy = is_view(g[v].op) || is_unpack(g, v);
      for (ValueId o : g[v].operands) last_use_[o] = std::max(last_use_[o], lazy ? last_use_[v] : v);
    }
    for (const ValueId result : g.results) last_use_[result] = g.nodes.size();
  }

  Graph run() {
    for (ValueId v = 0; v < std::ssize(r_.from.nodes); ++v) visit(v);
    for (ValueId result : r_.from.results) {
      const ValueId now = r_[result];
      const Op op = r_.to[now].op;
      if (is_view(op) || is_splat(r_.to[now]) || op == Op::iota_ || is_unpack(r_.to, now)) {
        r_.replace(result, copy(now));
      }
    }
    return r_.finish();
  }

 private:
  ValueId copy(ValueId v) { return r_.build.map(identity(r_.build.type(v).element.scalar), {v}); }

  void visit(ValueId v) {
    if (is_view(r_.from[v].op) || is_unpack(r_.from, v))
      load(v);
    else if (r_.from[v].op == Op::update_)
      update(v);
    else if (r_.from[v].op == Op::exchange_)
      exchange(v);
    else if (r_.from[v].op == Op::scan_)
      scan(v);
    else
      r_.keep(v);
    r_.keep_label(v);
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

  // Blocks that kernels cannot decode in unrolled code are decoded beforehand, unless only gathered rows are read.
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

  // Whether a value is contiguous in memory; `alone`: and is the whole of its source.
  bool is_dense(ValueId v, bool alone) const {
    const auto access = affine_access(r_.to, v);
    if (!access || read_below(r_.to, v) != access->source) return false;
    const std::vector<int64_t> extents = extents_of(r_.to[v].type.shape), dense = dense_strides_of(extents);
    bool lies =
        !alone || (access->offset == 0 && elements(r_.to[access->source].type.shape) == elements(r_.to[v].type.shape));
    for (size_t d = 0; d < extents.size(); ++d) lies = lies && (extents[d] == 1 || access->strides[d] == dense[d]);
    return lies;
  }

  // A value that is sent must be contiguous and a source of its own.
  void exchange(ValueId v) {
    const ValueId sent = r_[r_.from[v].operands[0]];
    const Attributes& a = r_.from[v].attributes;
    r_.replace(v, r_.build.exchange(is_dense(sent, true) ? sent : copy(sent), a.moves, a.ranks));
  }

  // Steps read their slice of a sequence, and loop-invariant values, in place.
  void scan(ValueId v) {
    constexpr int64_t kAlignment = 64;
    std::vector<ValueId> operands = r_.operands(v);
    for (ValueId& o : operands) {
      if (r_.to[o].type.element.format && !is_view(r_.to[o].op)) continue;
      const auto access = affine_access(r_.to, o);
      const bool lies =
          is_dense(o, false) && access->offset * int64_t{scalar_bytes(r_.to[o].type.element.scalar)} % kAlignment == 0;
      if (!lies) o = copy(o);
    }
    const Attributes& a = r_.from[v].attributes;
    r_.replace(v, r_.build.scan(a.callee, std::move(operands), a.carries, a.sequences, a.reverse));
  }

  Rewriter r_;
  std::vector<ValueId> updated_;
  std::vector<ValueId> last_use_;  // through loads; ids of the old graph
  std::vector<bool> whole_;        // has uses other than a gather of its rows
};

}  // namespace

void copy_loads(Graph& g) {
  g = Copier(g).run();
}

}  // namespace lumen::graph
