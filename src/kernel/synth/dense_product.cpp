#include "kernel/synth/dense_product.h"

#include "kernel/synth/dot_problem.h"

namespace lumen::synth {
namespace {

using graph::Node;
using graph::ValueId;
using machine::DenseProduct;

bool is_matrix_type(Scalar s) {
  return s == Scalar::f32 || s == Scalar::f16 || s == Scalar::bf16;
}

// The formula is `x` rounded to a shorter float.
bool only_rounds(const Formula& f) {
  return f.inputs.size() == 1 && f.outputs.size() == 1 &&
         f.nodes[static_cast<size_t>(f.outputs[0])].op == ScalarOp::cast_ &&
         f.nodes[static_cast<size_t>(f.nodes[static_cast<size_t>(f.outputs[0])].args[0])].op == ScalarOp::input;
}

// The formula is the sum of its two inputs.
bool only_adds(const Formula& f) {
  if (f.inputs.size() != 2 || f.outputs.size() != 1) return false;
  const ScalarNode& sum = f.nodes[static_cast<size_t>(f.outputs[0])];
  if (sum.op != ScalarOp::add_ || sum.type != Scalar::f32) return false;
  const ScalarNode &a = f.nodes[static_cast<size_t>(sum.args[0])], &b = f.nodes[static_cast<size_t>(sum.args[1])];
  return a.op == ScalarOp::input && b.op == ScalarOp::input && sum.args[0] != sum.args[1];
}

// What follows the sums: nothing, a rounding, or an addition; false for anything else.
bool read_epilogue(const graph::Graph& g, const DotProblem& p, DenseProduct* out) {
  if (p.epilogue.empty()) return p.result_scalar == Scalar::f32;
  if (p.epilogue.size() != 1) return false;
  const Node& map = g[p.epilogue[0]];
  if (p.loads.size() == 2) return only_rounds(map.attributes.formula);
  const DotLoad& added = p.loads[2];
  out->adds = true;
  return p.loads.size() == 3 && only_adds(map.attributes.formula) && p.result_scalar == Scalar::f32 &&
         added.kind == DotLoad::Kind::memory && added.scalar == Scalar::f32 && added.offset == 0 && added.scratch < 0 &&
         p.m.strides[2] == p.m.result && p.n.strides[2] == p.n.result;
}

// How an operand lies: its row index apart by k and k side by side, or turned; false for anything else.
bool read_order(const DotProblem& p, size_t load, const DotIndex& rows, bool* k_last) {
  const int64_t row = rows.strides[load], k = p.k.strides[load];
  *k_last = k == 1 && row == p.k.extent;
  return *k_last || (row == 1 && k == rows.extent);
}

}  // namespace

std::optional<DenseGroup> dense_group(const graph::Plan& plan, const graph::Group& group, Scalar products) {
  if (group.shape != graph::KernelShape::dot || group.root < 0 || group.results.size() != 1 ||
      plan.graph[group.root].op != graph::Op::contract_)
    return std::nullopt;
  const DotProblem p = normalise_dot(plan, group);
  if (p.pick || !p.outer.empty() || !p.outer_k.empty() || p.m.extent == 1 || p.n.extent == 1 || p.k.extent == 1)
    return std::nullopt;
  for (size_t i = 0; i < 2; ++i) {
    const DotLoad& l = p.loads[i];
    if (l.kind != DotLoad::Kind::memory || l.offset != 0 || l.scratch >= 0 || l.code || !is_matrix_type(l.scalar))
      return std::nullopt;
  }
  const Scalar operands = p.loads[0].scalar;
  if (p.loads[1].scalar != operands || (operands == Scalar::f32 && products != Scalar::f32)) return std::nullopt;

  DenseGroup out;
  DenseProduct& d = out.product;
  // normalise_dot() lays n along the result's rows.
  if (p.n.result != 1 || p.m.result != p.n.extent) return std::nullopt;
  d.m = p.m.extent;
  d.n = p.n.extent;
  d.k = p.k.extent;
  d.operands = operands;
  d.result = p.result_scalar;
  bool left_k_last = false, right_k_last = false;
  if (!is_matrix_type(d.result) || !read_epilogue(plan.graph, p, &d) || !read_order(p, 0, p.m, &left_k_last) ||
      !read_order(p, 1, p.n, &right_k_last))
    return std::nullopt;
  d.left_turned = !left_k_last;
  d.right_turned = right_k_last;
  out.values = {p.loads[0].source, p.loads[1].source};
  if (d.adds) out.values.push_back(p.loads[2].source);
  out.values.push_back(p.result);
  return out;
}

}  // namespace lumen::synth
