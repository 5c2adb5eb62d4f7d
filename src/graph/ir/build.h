// Builds graphs: each method checks its operands by the operator's rule (LUMEN_CHECK: callers are our own code; the
// language's checker reports users' mistakes earlier) and infers the result type.
#pragma once

#include <initializer_list>

#include "graph/ir/graph.h"

namespace lumen::graph {

class Builder {
 public:
  explicit Builder(Graph& g) : graph(g) {}
  Graph& graph;

  ValueId input(std::string name, Role role, Type type);
  ValueId constant(Type type, std::vector<double> data);
  ValueId scalar(double value, Scalar type = Scalar::f32);  // rank 0
  ValueId iota(Type type, int axis);
  ValueId map(Formula formula, std::vector<ValueId> operands);  // one output formulas
  // A letter that is summed and occurs in one operand only is reduced there first.
  ValueId contract(ValueId a, ValueId b, std::string ia, std::string ib, std::string ir);
  // The result's letters are the index's, then those of b that a lacks.
  ValueId contract_gather(ValueId a, ValueId b, ValueId index, std::string ia, std::string ib, std::string ii);
  // The result has `rows` rows, and the letters ir.
  ValueId contract_scatter(ValueId a, ValueId b, ValueId index, std::string ia, std::string ib, std::string ii,
                           std::string ir, Dim rows);
  ValueId reduce(ValueId a, Reduction r, std::vector<int> axes);  // keeps axes as extent 1; -1 is the last axis
  ValueId gather(ValueId table, ValueId index);
  ValueId scatter_add(ValueId value, ValueId index, Dim rows);
  ValueId reshape(ValueId a, Shape shape);
  ValueId permute(ValueId a, std::vector<int> axes);
  ValueId broadcast(ValueId a, Shape shape);
  ValueId slice(ValueId a, std::vector<int64_t> starts, Shape sizes, std::vector<int64_t> strides = {});
  // One start per axis of a; strides[d * rank + j]: the step of index j of the result along axis d.
  ValueId windows(ValueId a, std::vector<int64_t> starts, std::vector<int64_t> strides, Shape shape);
  ValueId view(const Node& like, ValueId a);  // the view `like` of another value
  ValueId pad(ValueId a, Shape shape, std::vector<int64_t> starts, std::vector<int64_t> strides = {});
  ValueId concat(std::vector<ValueId> parts, int axis);
  ValueId cast(ValueId a, Element to, std::vector<std::pair<int, FieldSource>> sources = {},
               std::vector<ValueId> fields = {});
  ValueId random(ValueId seed, uint32_t salt, Shape shape);
  ValueId update(ValueId state, ValueId value, std::vector<ValueId> starts = {});
  ValueId exchange(ValueId a, Moves moves, int ranks);
  ValueId call(std::shared_ptr<const Graph> callee, std::vector<ValueId> operands);
  ValueId result(ValueId call, int index);  // of a call or a scan
  // Operands: carries, sequences, constants. A scan with one result is that result.
  ValueId scan(std::shared_ptr<const Graph> body, std::vector<ValueId> operands, int carries, int sequences,
               bool reverse = false);

  // Elementwise shorthands (maps with one operation).
  ValueId unary(ScalarOp op, ValueId a);
  ValueId binary(ScalarOp op, ValueId a, ValueId b);
  ValueId add(ValueId a, ValueId b) { return binary(ScalarOp::add_, a, b); }
  ValueId sub(ValueId a, ValueId b) { return binary(ScalarOp::sub_, a, b); }
  ValueId mul(ValueId a, ValueId b) { return binary(ScalarOp::mul_, a, b); }
  ValueId div(ValueId a, ValueId b) { return binary(ScalarOp::div_, a, b); }
  ValueId select(ValueId c, ValueId a, ValueId b);
  ValueId convert(ValueId a, Scalar to);  // cast between scalar types, as a map

  const Type& type(ValueId v) const { return graph[v].type; }
};

// Result type of a node from operands and attributes (reshape, broadcast, slice, windows, pad and cast take it from the
// node itself and only check). Returns an empty string or an error message.
std::string check_type(const Graph& g, const Node& node);

// The same rule, returning the type instead of comparing: node.type is read only by the operators named above (and by
// input, constant, iota, random and, for their rows, scatter_add and contract_scatter). Operands must precede: they are
// looked up in g.
std::string infer_type(const Graph& g, const Node& node, Type* result);

}  // namespace lumen::graph
