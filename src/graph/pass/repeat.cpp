// repeat_casts: a parameter rounded for a product of the forward pass is rounded again for the backward pass rather
// than kept in between: rounding again costs little time, while all rounded parameters of a model at once cost much
// memory. Sums are not changed, so every bit stays. Proved by tests/graph/repeat_test.cpp.
#include "graph/fuse/plan.h"
#include "graph/ir/rewrite.h"
#include "graph/match/access.h"
#include "graph/match/uses.h"
#include "graph/pass/pass.h"

namespace lumen::graph {

namespace {

constexpr size_t kCheap = 4;              // scalar nodes of the map
constexpr int64_t kLeastBytes = 1 << 16;  // smaller values are kept

class Repeater {
 public:
  explicit Repeater(const Graph& g) : r_(g), seen_(g.nodes.size(), -1) {}

  Graph run() {
    for (ValueId v = 0; v < std::ssize(r_.from.nodes); ++v) {
      if (r_.from[v].op == Op::contract_)
        for (ValueId o : r_.from[v].operands) use(o, v);
      r_.keep(v);
      seen_[v] = v;
    }
    return r_.finish();
  }

 private:
  bool is_rounded_parameter(ValueId v) const {
    const Node& node = r_.from[v];
    if (node.op != Op::map_ || node.operands.size() != 1 || node.attributes.formula.nodes.size() > kCheap) return false;
    const ValueId below = read_below(r_.from, node.operands[0]);
    return below >= 0 && r_.from[below].op == Op::input_ && r_.from[below].attributes.role == Role::parameter &&
           byte_size(node.type) >= kLeastBytes;
  }

  // Replaces the operand of product `user`: recomputed with the views above it, if its last use is far back.
  void use(ValueId operand, ValueId user) {
    std::vector<ValueId> views;
    ValueId v = operand;
    for (; is_view(r_.from[v].op); v = r_.from[v].operands[0]) views.push_back(v);
    if (!is_rounded_parameter(v)) return;
    if (user - seen_[v] > kFar) {
      r_.keep(v);
      while (!views.empty()) {
        r_.keep(views.back());
        views.pop_back();
      }
    }
    seen_[v] = user;
  }

  Rewriter r_;
  std::vector<ValueId> seen_;  // by value: its last use, or itself
};

}  // namespace

void repeat_casts(Graph& g) {
  g = Repeater(g).run();
}

}  // namespace lumen::graph
