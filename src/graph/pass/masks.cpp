// clone_masks: a map of iotas, constants and single numbers (a mask, positions) becomes part of each map that reads it:
// recomputing is cheaper than reading. Proved by tests/graph/pass/clone_masks.txt and tests/graph/fuse_test.cpp.
#include "graph/ir/rewrite.h"
#include "graph/match/access.h"
#include "graph/match/uses.h"
#include "graph/pass/pass.h"

namespace lumen::graph {

namespace {

constexpr size_t kCheap = 16;  // scalar nodes, nested maps included: recomputed at every use rather than stored

class Cloner {
 public:
  explicit Cloner(const Graph& g) : r_(g), live_(live_values(g)), updated_(updates_of(g)), weight_(g.nodes.size(), 0) {}

  Graph run() {
    for (ValueId v = 0; v < std::ssize(r_.from.nodes); ++v) {
      if (!live_[v]) continue;
      if (r_.from[v].op == Op::map_)
        map(v);
      else
        r_.keep(v);
    }
    const Graph cloned = r_.finish();
    return without_dead(cloned);
  }

 private:
  static Graph without_dead(const Graph& g) {
    Rewriter r(g);
    const std::vector<bool> live = live_values(g);
    for (ValueId v = 0; v < std::ssize(g.nodes); ++v) {
      if (live[v]) r.keep(v);
    }
    return r.finish();
  }

  void map(ValueId v) {
    std::vector<ValueId> operands = r_.operands(v);
    for (size_t i = 0; i < operands.size(); ++i) {
      if (is_free(r_.from[v].operands[i])) operands[i] = clone(r_.from[v].operands[i], r_.from[v].type.shape);
    }
    r_.replace(v, r_.build.map(r_.from[v].attributes.formula, operands));
    r_.keep_label(v);
    weigh(v);
  }

  // Its operands were visited before.
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

  // A free map computed at the shape of its user: one operand is broadcast to it, the others align.
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
  std::vector<size_t> weight_;  // of free maps; 0 for all other values
};

}  // namespace

void clone_masks(Graph& g) {
  g = Cloner(g).run();
}

}  // namespace lumen::graph
