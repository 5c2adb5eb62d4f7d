// Chooses forward values that a gradient recomputes rather than reads. A map is cheap if its operands of the same size
// are in memory for other reasons (they feed a product, or several kernels) or are such maps themselves; storing it
// would cost a write and a read of a whole tensor for a few operations: exp(s - m) of a softmax, x / |x| of a norm, a
// gate's sigmoid. A map after a product of one use stays: it is that product's epilogue, and the product itself is
// never in memory. Operands of smaller shape (row sums) are read. Proved by tests/graph/grad/grad_test.cpp.
#include <algorithm>

#include "graph/grad/rules.h"

namespace lumen::graph {

namespace {

constexpr size_t kMaxFormula = 64;  // scalar nodes of one gradient map
constexpr size_t kMaxOperands = 8;

}  // namespace

void Reverse::count_uses(ValueId begin, ValueId end) {
  uses_.resize(end);
  recomputable_.resize(end, 0);
  for (ValueId v = begin; v < end; ++v) {
    const Op op = build.graph[v].op;
    if (op == Op::reshape_) continue;  // its users read the value below, whose shape follows theirs (split_contracts)
    for (ValueId o : build.graph[v].operands) {
      for (;; o = build.graph[o].operands[0]) {
        (op == Op::map_ || op == Op::reduce_ ? uses_[o].by_maps : uses_[o].by_others) += 1;
        if (build.graph[o].op != Op::reshape_) break;
      }
    }
    if (op == Op::map_) mark_read_by_gradient(v);
  }
}

// The operands that the derivatives of a map read will be in memory for them.
void Reverse::mark_read_by_gradient(ValueId v) {
  const Node& node = build.graph[v];
  if (!is_float(node.type.element.scalar)) return;
  for (size_t slot = 0; slot < node.operands.size(); ++slot) {
    if (!active(node.operands[slot]) || !is_float(build.type(node.operands[slot]).element.scalar)) continue;
    Formula formula = derivative(node.attributes.formula, 0, slot);
    for (ValueId o : used_operands(&formula, node.operands)) uses_[below_reshapes(o)].by_gradient = true;
  }
}

ValueId Reverse::below_reshapes(ValueId v) const {
  while (build.graph[v].op == Op::reshape_) v = build.graph[v].operands[0];
  return v;
}

bool Reverse::stored(ValueId v) const {
  v = below_reshapes(v);
  const Op op = build.graph[v].op;
  const bool fused_when_single = op == Op::map_ || op == Op::random_ || is_product(op);
  return !fused_when_single || uses_[v].by_gradient || uses_[v].by_others > 0 || uses_[v].by_maps > 1;
}

bool Reverse::recomputable(ValueId v) {
  if (v >= std::ssize(recomputable_)) return false;  // part of the gradient
  if (recomputable_[v] == 0) {
    const Node& node = build.graph[v];
    const bool yes = node.op == Op::map_ && node.attributes.formula.nodes.size() <= kMaxFormula &&
                     std::all_of(node.operands.begin(), node.operands.end(), [&](ValueId o) {
                       return build.type(o).shape != node.type.shape || recomputable(o) || stored(o);
                     });
    recomputable_[v] = yes ? 1 : -1;
  }
  return recomputable_[v] == 1;
}

void Reverse::recompute(Formula* formula, std::vector<ValueId>* operands, const Shape& shape) {
  for (size_t i = 0; i < operands->size();) {
    const ValueId o = (*operands)[i];
    const bool again = build.type(o).shape == shape && recomputable(o) && uses_[o].by_others == 0;
    const Node& node = build.graph[o];
    if (!again || formula->nodes.size() + node.attributes.formula.nodes.size() > kMaxFormula ||
        operands->size() + node.operands.size() > kMaxOperands) {
      ++i;
      continue;
    }
    *formula = compose(*formula, i, node.attributes.formula, 0);
    operands->erase(operands->begin() + i);
    for (ValueId below : node.operands) operands->push_back(below);
    // A repeated operand is merged, so that chains that rejoin do not grow.
    for (size_t a = 0; a < operands->size(); ++a) {
      for (size_t b = operands->size() - 1; b > a; --b) {
        if ((*operands)[a] != (*operands)[b]) continue;
        for (ScalarNode& n : formula->nodes) {
          if (n.op == ScalarOp::input && n.index == static_cast<int>(b)) n.index = a;
          if (n.op == ScalarOp::input && n.index > static_cast<int>(b)) --n.index;
        }
        formula->inputs.erase(formula->inputs.begin() + b);
        operands->erase(operands->begin() + b);
      }
    }
    *formula = simplify_formula(*formula);
  }
}

}  // namespace lumen::graph
