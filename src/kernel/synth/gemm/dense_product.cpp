#include "kernel/synth/gemm/dense_product.h"

#include <algorithm>

#include "kernel/synth/gemm/dot_problem.h"

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
  return f.inputs.size() == 1 && f.outputs.size() == 1 && f.nodes[f.outputs[0]].op == ScalarOp::cast_ &&
         f.nodes[f.nodes[f.outputs[0]].args[0]].op == ScalarOp::input;
}

// The formula is the sum of its two inputs.
bool only_adds(const Formula& f) {
  if (f.inputs.size() != 2 || f.outputs.size() != 1) return false;
  const ScalarNode& sum = f.nodes[f.outputs[0]];
  if (sum.op != ScalarOp::add_ || sum.type != Scalar::f32) return false;
  const ScalarNode &a = f.nodes[sum.args[0]], &b = f.nodes[sum.args[1]];
  return a.op == ScalarOp::input && b.op == ScalarOp::input && sum.args[0] != sum.args[1];
}

// The formula is the product of all its inputs, each once.
bool only_multiplies(const Formula& f) {
  std::vector<bool> seen(f.inputs.size(), false);
  const auto walk = [&](const auto& self, int node) -> bool {
    const ScalarNode& n = f.nodes[node];
    if (n.op == ScalarOp::mul_ && n.type == Scalar::f32) return self(self, n.args[0]) && self(self, n.args[1]);
    if (n.op != ScalarOp::input || seen[n.index]) return false;
    seen[n.index] = true;
    return true;
  };
  return f.outputs.size() == 1 && walk(walk, f.outputs[0]) && std::find(seen.begin(), seen.end(), false) == seen.end();
}

// Reads the epilogue: up to two scales, then nothing, a rounding, or an addition; false for anything else.
bool read_epilogue(const graph::Graph& g, const DotProblem& p, DenseGroup* out) {
  DenseProduct& d = out->product;
  ValueId before = p.contract;
  bool rounds = false;
  for (const ValueId v : p.epilogue) {
    if (rounds || d.adds) return false;
    const Node& map = g[v];
    const Formula& f = map.attributes.formula;
    std::vector<size_t> others;  // loads
    for (const ValueId operand : map.operands) {
      if (operand == before) continue;
      const auto load =
          std::find_if(p.loads.begin() + 2, p.loads.end(), [&](const DotLoad& l) { return l.value == operand; });
      if (load == p.loads.end() || load->kind != DotLoad::Kind::memory || load->scalar != Scalar::f32 ||
          load->offset != 0 || load->scratch >= 0)
        return false;
      others.push_back(load - p.loads.begin());
    }
    if (others.size() + 1 != map.operands.size()) return false;
    const auto lies = [&](size_t load, int64_t m, int64_t n) {
      return p.m.strides[load] == m && p.n.strides[load] == n;
    };
    if (others.empty() && only_rounds(f)) {
      rounds = true;
    } else if (others.size() == 2 && !d.scales && only_multiplies(f) && lies(others[0], 0, 0) &&
               lies(others[1], 0, 0)) {
      d.scales = true;
      for (const size_t load : others) out->values.push_back(p.loads[load].source);
    } else if (others.size() == 1 && only_adds(f) && lies(others[0], p.m.result, p.n.result)) {
      d.adds = true;
      out->values.push_back(p.loads[others[0]].source);
    } else {
      return false;
    }
    before = v;
  }
  // Only codes have scales; sums that are not rounded are f32.
  return (rounds || p.result_scalar == Scalar::f32) && d.scales == d.code.has_value();
}

// Storage order of an operand: k is contiguous in dense rows, or the transpose; false for anything else.
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
  DenseGroup out;
  DenseProduct& d = out.product;
  for (size_t i = 0; i < 2; ++i) {
    const DotLoad& l = p.loads[i];
    const bool packed = l.kind == DotLoad::Kind::packed;
    const std::optional<machine::FloatCode> code = packed ? machine::code_of(*l.format) : std::nullopt;
    const Scalar scalar = packed ? Scalar::u8 : l.scalar;
    if (l.offset != 0 || l.scratch >= 0 || l.zeros || (i == 1 && (scalar != d.operands || code != d.code)))
      return std::nullopt;
    if (packed ? !code : l.kind != DotLoad::Kind::memory || !is_matrix_type(scalar)) return std::nullopt;
    d.operands = scalar;
    d.code = code;
    out.values.push_back(l.source);
  }
  if (d.operands == Scalar::f32 && products != Scalar::f32) return std::nullopt;

  // normalise_dot() makes n the contiguous index of the result.
  if (p.n.result != 1 || p.m.result != p.n.extent) return std::nullopt;
  d.m = p.m.extent;
  d.n = p.n.extent;
  d.k = p.k.extent;
  d.result = p.result_scalar;
  bool left_k_last = false, right_k_last = false;
  if (!is_matrix_type(d.result) || !read_epilogue(plan.graph, p, &out) || !read_order(p, 0, p.m, &left_k_last) ||
      !read_order(p, 1, p.n, &right_k_last))
    return std::nullopt;
  d.left_transposed = !left_k_last;
  d.right_transposed = right_k_last;
  out.values.push_back(p.result);
  return out;
}

}  // namespace lumen::synth
