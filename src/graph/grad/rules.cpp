// The gradient of every operator, one rule per row of op.def (a row without a rule does not compile). r = op(a, b, ..),
// dr is the gradient of r; a rule adds to the gradients of a, b, ..
//
//   map          da = dr * d formula / d a, summed where a was broadcast       (number's derivative())
//   contract     da = contract(dr, b), db = contract(a, dr): the index letters suffice, no transposes
//   contract_gather  da = contract_gather(dr, b), db = contract_scatter(dr, a), and vice versa
//   reduce       sum: da = dr broadcast; max, min: dr in equal shares to all places that hold the extreme
//   gather       dtable = scatter_add(dr);  scatter_add: dvalue = gather(dr)
//   views        the opposite view: reshape, inverse permute, sum, pad, slice
//   windows      the sum over overlapping windows (windows.cpp)
//                below max, min: compares each element with its windows' extremes, in the operand's shape
//                below a contract: da = contract(windows of dr, b reversed)
//   cast         straight-through estimator (cast.cpp)
//   exchange     none: differentiation precedes partitioning
//   scan         a scan in reverse (scan.cpp)
//   iota, random, constant, input: no gradient;  update: no loss may depend on it;  call: through its expanded body
//
// Proved by finite differences in tests/graph/grad/grad_test.cpp.
#include "graph/grad/rules.h"

#include <algorithm>

#include "base/check.h"
#include "base/error.h"
#include "base/ordinal.h"

namespace lumen::graph {

namespace {

void grad_input(Reverse&, ValueId, ValueId) {}
void grad_constant(Reverse&, ValueId, ValueId) {}
void grad_iota(Reverse&, ValueId, ValueId) {}
void grad_random(Reverse&, ValueId, ValueId) {}

void grad_map(Reverse& r, ValueId v, ValueId dr) {
  const Node node = r.build.graph[v];  // a copy: the graph grows
  const Scalar type = node.type.element.scalar;
  if (!is_float(type)) return;
  for (size_t i = 0; i < node.operands.size(); ++i) {
    const ValueId a = node.operands[i];
    const Type operand = r.build.type(a);
    if (!r.active(a) || !is_float(operand.element.scalar)) continue;
    Formula d = simplify_formula(derivative(node.attributes.formula, 0, i));
    const ScalarNode slope = d.nodes[d.outputs[0]];
    if (slope.op == ScalarOp::constant && slope.real == 0) continue;
    std::vector<ValueId> operands = r.used_operands(&d, node.operands);
    r.recompute(&d, &operands, node.type.shape);
    const int output = d.outputs[0];
    d.inputs.push_back(type);
    const int seed = d.input(d.inputs.size() - 1);
    const bool one = slope.op == ScalarOp::constant && slope.real == 1;
    d.outputs[0] = one ? seed : d.op(ScalarOp::mul_, seed, output);
    if (operand.element.scalar != type) d.outputs[0] = d.convert(ScalarOp::cast_, operand.element.scalar, d.outputs[0]);
    operands.push_back(dr);
    r.add(a, r.reduce_to(r.lean_map(std::move(d), operands), operand.shape));
  }
}

void grad_contract(Reverse& r, ValueId v, ValueId dr) {
  const Node node = r.build.graph[v];
  const ValueId a = node.operands[0], b = node.operands[1];
  const std::vector<std::string>& letters = node.attributes.indices;
  const auto fitting = [&](ValueId g, ValueId to) { return r.build.convert(g, r.build.type(to).element.scalar); };
  if (r.active(a) && !windows_gradient(r, a, letters[0], b, letters[1], dr, letters[2]))
    r.add(a, fitting(r.build.contract(dr, b, letters[2], letters[1], letters[0]), a));
  if (r.active(b) && !windows_gradient(r, b, letters[1], a, letters[0], dr, letters[2]))
    r.add(b, fitting(r.build.contract(dr, a, letters[2], letters[0], letters[1]), b));
}

// A value with axes `from`, rearranged to the axes `to`: letters that are not in `to` are summed.
ValueId with_letters(Reverse& r, ValueId v, std::string from, const std::string& to) {
  Shape shape;
  std::string kept;
  std::vector<int> summed, axes;
  for (size_t d = 0; d < from.size(); ++d) {
    if (to.find(from[d]) == std::string::npos) {
      summed.push_back(d);
    } else {
      kept += from[d];
      shape.push_back(r.build.type(v).shape[d]);
    }
  }
  if (!summed.empty()) v = r.build.reshape(r.build.reduce(v, Reduction::sum, summed), shape);
  for (const char c : to) axes.push_back(kept.find(c));
  return kept == to ? v : r.build.permute(v, axes);
}

// The gradient of a factor of a sum over selected rows: the product of the result's gradient and the other factor, with
// the same index.
void add_picked(Reverse& r, ValueId to, const std::string& letters, ValueId rows, const std::string& of_rows,
                ValueId table, const std::string& of_table, ValueId index, const std::string& of_index) {
  if (!r.active(to)) return;
  const ValueId product = r.build.contract_gather(rows, table, index, of_rows, of_table, of_index);
  const std::string result = r.build.graph[product].attributes.indices[3];
  r.add(to, r.build.convert(with_letters(r, product, result, letters), r.build.type(to).element.scalar));
}

void grad_contract_gather(Reverse& r, ValueId v, ValueId dr) {
  const Node node = r.build.graph[v];
  const ValueId a = node.operands[0], b = node.operands[1], index = node.operands[2];
  const std::vector<std::string>& letters = node.attributes.indices;
  add_picked(r, a, letters[0], dr, letters[3], b, letters[1], index, letters[2]);
  if (!r.active(b)) return;
  const ValueId db =
      r.build.contract_scatter(dr, a, index, letters[3], letters[0], letters[2], letters[1], r.build.type(b).shape[0]);
  r.add(b, r.build.convert(db, r.build.type(b).element.scalar));
}

void grad_contract_scatter(Reverse& r, ValueId v, ValueId dr) {
  const Node node = r.build.graph[v];
  const ValueId a = node.operands[0], b = node.operands[1], index = node.operands[2];
  const std::vector<std::string>& letters = node.attributes.indices;
  add_picked(r, a, letters[0], b, letters[1], dr, letters[3], index, letters[2]);
  add_picked(r, b, letters[1], a, letters[0], dr, letters[3], index, letters[2]);
}

void grad_reduce(Reverse& r, ValueId v, ValueId dr) {
  const Node node = r.build.graph[v];
  const ValueId a = node.operands[0];
  const Type type = r.build.type(a);
  if (!is_float(type.element.scalar)) return;
  if (node.attributes.reduction == Reduction::sum) {
    r.add(a, r.build.broadcast(dr, type.shape));
    return;
  }
  Formula hit;  // 1 where a equals the extreme
  hit.inputs = {type.element.scalar, type.element.scalar};
  const int x = hit.input(0), extreme = hit.input(1);
  const int one = hit.constant(type.element.scalar, 1), zero = hit.constant(type.element.scalar, 0);
  hit.outputs = {hit.op(ScalarOp::select_, hit.op(ScalarOp::eq_, x, extreme), one, zero)};
  const ValueId hits = r.build.map(hit, {a, v});
  const ValueId count = r.build.reduce(hits, Reduction::sum, node.attributes.axes);
  const ValueId share = r.build.div(dr, count);
  if (!extremes_of_windows(r, v, share)) r.add(a, r.build.mul(hits, share));
}

void grad_gather(Reverse& r, ValueId v, ValueId dr) {
  const std::vector<ValueId> operands = r.build.graph[v].operands;
  r.add(operands[0], r.build.scatter_add(dr, operands[1], r.build.type(operands[0]).shape[0]));
}

void grad_scatter_add(Reverse& r, ValueId v, ValueId dr) {
  const std::vector<ValueId> operands = r.build.graph[v].operands;
  r.add(operands[0], r.build.gather(dr, operands[1]));
}

void grad_reshape(Reverse& r, ValueId v, ValueId dr) {
  const ValueId a = r.build.graph[v].operands[0];
  r.add(a, r.build.reshape(dr, r.build.type(a).shape));
}

void grad_permute(Reverse& r, ValueId v, ValueId dr) {
  const Node node = r.build.graph[v];
  std::vector<int> inverse(node.attributes.axes.size());
  for (size_t d = 0; d < inverse.size(); ++d) inverse[node.attributes.axes[d]] = d;
  r.add(node.operands[0], r.build.permute(dr, inverse));
}

void grad_broadcast(Reverse& r, ValueId v, ValueId dr) {
  const ValueId a = r.build.graph[v].operands[0];
  r.add(a, r.reduce_to(dr, r.build.type(a).shape));
}

void grad_slice(Reverse& r, ValueId v, ValueId dr) {
  const Node node = r.build.graph[v];
  const ValueId a = node.operands[0];
  r.add(a, r.build.pad(dr, r.build.type(a).shape, node.attributes.starts, node.attributes.strides));
}

void grad_windows(Reverse& r, ValueId v, ValueId dr) {
  r.add(r.build.graph[v].operands[0], sum_of_windows(r, v, dr));
}

void grad_pad(Reverse& r, ValueId v, ValueId dr) {
  const Node node = r.build.graph[v];
  const ValueId a = node.operands[0];
  r.add(a, r.build.slice(dr, node.attributes.starts, r.build.type(a).shape, node.attributes.strides));
}

void grad_concat(Reverse& r, ValueId v, ValueId dr) {
  const Node node = r.build.graph[v];
  std::vector<int64_t> starts(node.type.shape.size(), 0);
  for (ValueId part : node.operands) {
    const Shape shape = r.build.type(part).shape;
    if (r.active(part)) r.add(part, r.build.slice(dr, starts, shape));
    if (part == node.operands.back()) break;
    if (!shape[node.attributes.axis].is_number()) {
      throw user_error("no gradient: concat %{} has parts of symbolic extent along its axis; bind the symbols first",
                       v);
    }
    starts[node.attributes.axis] += shape[node.attributes.axis].number();
  }
}

void grad_cast(Reverse& r, ValueId v, ValueId dr) {
  cast_gradient(r, v, dr);
}

void grad_update(Reverse& r, ValueId v, ValueId) {
  throw user_error("no gradient: the loss depends on update %{}{}; read the state before it is updated", v,
                   r.build.graph[v].label.empty() ? "" : " (" + r.build.graph[v].label + ")");
}

void grad_exchange(Reverse&, ValueId v, ValueId) {
  LUMEN_UNREACHABLE("exchange %{} in a graph to differentiate: graphs are partitioned later", v);
}
void grad_call(Reverse&, ValueId, ValueId) {
  LUMEN_UNREACHABLE("calls are expanded by reverse.cpp");
}
void grad_scan(Reverse&, ValueId, ValueId) {
  LUMEN_UNREACHABLE("a scan's gradient has those of all its results: scan.cpp, by reverse.cpp");
}
void grad_chunk(Reverse&, ValueId, ValueId) {
  LUMEN_UNREACHABLE("reverse.cpp drops chunks first");
}
void grad_result(Reverse&, ValueId, ValueId) {
  LUMEN_UNREACHABLE("calls are expanded by reverse.cpp");
}

constexpr GradientRule kRules[] = {
#define X(name, operands, attributes, pure, text) grad_##name,
#include "graph/ir/op.def"
#undef X
};

}  // namespace

GradientRule gradient_rule(Op op) {
  return kRules[ordinal(op)];
}

}  // namespace lumen::graph
