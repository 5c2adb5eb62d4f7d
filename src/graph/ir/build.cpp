// Builder: appends nodes whose types follow from infer.cpp. Proved by tests/graph/ir/type_test.cpp and text_test.cpp.
#include "graph/ir/build.h"

#include <algorithm>

#include "base/check.h"

namespace lumen::graph {

namespace {

ValueId append(Graph& g, Node node) {
  const std::string wrong = infer_type(g, node, &node.type);
  LUMEN_CHECK(wrong.empty(), "{}", wrong);
  g.nodes.push_back(std::move(node));
  return g.nodes.size() - 1;
}

Node make(Op op, std::vector<ValueId> operands, Type type = {}) {
  Node node{op, std::move(type), std::move(operands), {}, {}};
  return node;
}

// Sums over letters that only this operand has and the result lacks.
ValueId reduce_lonely(Builder& b, ValueId v, std::string& letters, const std::string& other,
                      const std::string& result) {
  std::vector<int> axes;
  std::string kept;
  Shape shape;
  LUMEN_CHECK(letters.size() == b.type(v).shape.size(), "contract: {} letters for {}", letters.size(),
              print(b.type(v)));
  for (size_t d = 0; d < letters.size(); ++d) {
    if (other.find(letters[d]) == std::string::npos && result.find(letters[d]) == std::string::npos) {
      axes.push_back(d);
    } else {
      kept += letters[d];
      shape.push_back(b.type(v).shape[d]);
    }
  }
  if (axes.empty()) return v;
  LUMEN_CHECK(is_float(b.type(v).element.scalar), "index {} of whole numbers is in one operand only", letters[axes[0]]);
  letters = kept;
  return b.reshape(b.reduce(v, Reduction::sum, axes), shape);
}

std::vector<int64_t> ones(std::vector<int64_t> strides, size_t rank) {
  return strides.empty() ? std::vector<int64_t>(rank, 1) : strides;
}

}  // namespace

ValueId Builder::input(std::string name, Role role, Type t) {
  Node node = make(Op::input_, {}, std::move(t));
  node.attributes.name = std::move(name);
  node.attributes.role = role;
  return append(graph, std::move(node));
}

ValueId Builder::constant(Type t, std::vector<double> data) {
  Node node = make(Op::constant_, {}, std::move(t));
  node.attributes.data = std::move(data);
  return append(graph, std::move(node));
}

ValueId Builder::scalar(double value, Scalar t) {
  return constant({{}, {t, nullptr}}, {value});
}

ValueId Builder::iota(Type t, int axis) {
  Node node = make(Op::iota_, {}, std::move(t));
  node.attributes.axis = axis;
  return append(graph, std::move(node));
}

ValueId Builder::map(Formula formula, std::vector<ValueId> operands) {
  Node node = make(Op::map_, std::move(operands));
  node.attributes.formula = std::move(formula);
  return append(graph, std::move(node));
}

ValueId Builder::contract(ValueId a, ValueId b, std::string ia, std::string ib, std::string ir) {
  a = reduce_lonely(*this, a, ia, ib, ir);
  b = reduce_lonely(*this, b, ib, ia, ir);
  Node node = make(Op::contract_, {a, b});
  node.attributes.indices = {std::move(ia), std::move(ib), std::move(ir)};
  return append(graph, std::move(node));
}

ValueId Builder::contract_gather(ValueId a, ValueId b, ValueId index, std::string ia, std::string ib, std::string ii) {
  std::string ir = ii;
  for (const char c : ib.substr(1))
    if (ia.find(c) == std::string::npos) ir += c;
  Node node = make(Op::contract_gather_, {a, b, index});
  node.attributes.indices = {std::move(ia), std::move(ib), std::move(ii), std::move(ir)};
  return append(graph, std::move(node));
}

ValueId Builder::contract_scatter(ValueId a, ValueId b, ValueId index, std::string ia, std::string ib, std::string ii,
                                  std::string ir, Dim rows) {
  Node node = make(Op::contract_scatter_, {a, b, index}, {{std::move(rows)}, {}});
  node.attributes.indices = {std::move(ia), std::move(ib), std::move(ii), std::move(ir)};
  return append(graph, std::move(node));
}

ValueId Builder::reduce(ValueId a, Reduction r, std::vector<int> axes) {
  for (int& axis : axes) {
    if (axis < 0) axis += type(a).shape.size();
  }
  std::sort(axes.begin(), axes.end());
  Node node = make(Op::reduce_, {a});
  node.attributes.reduction = r;
  node.attributes.axes = std::move(axes);
  return append(graph, std::move(node));
}

ValueId Builder::gather(ValueId table, ValueId index) {
  return append(graph, make(Op::gather_, {table, index}));
}

ValueId Builder::scatter_add(ValueId value, ValueId index, Dim rows) {
  return append(graph, make(Op::scatter_add_, {value, index}, {{std::move(rows)}, {}}));
}

ValueId Builder::reshape(ValueId a, Shape shape) {
  return append(graph, make(Op::reshape_, {a}, {std::move(shape), {}}));
}

ValueId Builder::permute(ValueId a, std::vector<int> axes) {
  Node node = make(Op::permute_, {a});
  node.attributes.axes = std::move(axes);
  return append(graph, std::move(node));
}

ValueId Builder::broadcast(ValueId a, Shape shape) {
  return append(graph, make(Op::broadcast_, {a}, {std::move(shape), {}}));
}

ValueId Builder::slice(ValueId a, std::vector<int64_t> starts, Shape sizes, std::vector<int64_t> strides) {
  Node node = make(Op::slice_, {a}, {std::move(sizes), {}});
  node.attributes.strides = ones(std::move(strides), starts.size());
  node.attributes.starts = std::move(starts);
  return append(graph, std::move(node));
}

ValueId Builder::windows(ValueId a, std::vector<int64_t> starts, std::vector<int64_t> strides, Shape shape) {
  Node node = make(Op::windows_, {a}, {std::move(shape), {}});
  node.attributes.starts = std::move(starts);
  node.attributes.strides = std::move(strides);
  return append(graph, std::move(node));
}

ValueId Builder::view(const Node& like, ValueId a) {
  Node node = make(like.op, {a}, {like.type.shape, {}});
  node.attributes = like.attributes;
  return append(graph, std::move(node));
}

ValueId Builder::pad(ValueId a, Shape shape, std::vector<int64_t> starts, std::vector<int64_t> strides) {
  Node node = make(Op::pad_, {a}, {std::move(shape), {}});
  node.attributes.strides = ones(std::move(strides), starts.size());
  node.attributes.starts = std::move(starts);
  return append(graph, std::move(node));
}

ValueId Builder::concat(std::vector<ValueId> parts, int axis) {
  LUMEN_CHECK(!parts.empty(), "concat of nothing");
  Node node = make(Op::concat_, std::move(parts));
  node.attributes.axis = axis < 0 ? axis + static_cast<int>(type(node.operands[0]).shape.size()) : axis;
  return append(graph, std::move(node));
}

ValueId Builder::cast(ValueId a, Element to, std::vector<std::pair<int, FieldSource>> sources,
                      std::vector<ValueId> fields) {
  Node node = make(Op::cast_, {a}, {{}, std::move(to)});
  node.operands.insert(node.operands.end(), fields.begin(), fields.end());
  node.attributes.sources = std::move(sources);
  return append(graph, std::move(node));
}

ValueId Builder::random(ValueId seed, uint32_t salt, Shape shape) {
  Node node = make(Op::random_, {seed}, {std::move(shape), {}});
  node.attributes.salt = salt;
  return append(graph, std::move(node));
}

ValueId Builder::update(ValueId state, ValueId value, std::vector<ValueId> starts) {
  Node node = make(Op::update_, {state, value});
  node.operands.insert(node.operands.end(), starts.begin(), starts.end());
  return append(graph, std::move(node));
}

ValueId Builder::exchange(ValueId a, Moves moves, int ranks) {
  Node node = make(Op::exchange_, {a});
  node.attributes.moves = moves;
  node.attributes.ranks = ranks;
  return append(graph, std::move(node));
}

ValueId Builder::call(std::shared_ptr<const Graph> callee, std::vector<ValueId> operands) {
  Node node = make(Op::call_, std::move(operands));
  node.attributes.name = callee->name;
  node.attributes.callee = std::move(callee);
  return append(graph, std::move(node));
}

ValueId Builder::scan(std::shared_ptr<const Graph> body, std::vector<ValueId> operands, int carries, int sequences,
                      bool reverse) {
  Node node = make(Op::scan_, std::move(operands));
  node.attributes.name = body->name;
  node.attributes.callee = std::move(body);
  node.attributes.carries = carries;
  node.attributes.sequences = sequences;
  node.attributes.reverse = reverse;
  return append(graph, std::move(node));
}

ValueId Builder::result(ValueId call_value, int index) {
  Node node = make(Op::result_, {call_value});
  node.attributes.index = index;
  return append(graph, std::move(node));
}

ValueId Builder::unary(ScalarOp op, ValueId a) {
  Formula f;
  f.inputs = {type(a).element.scalar};
  f.outputs = {f.op(op, f.input(0))};
  return map(std::move(f), {a});
}

ValueId Builder::binary(ScalarOp op, ValueId a, ValueId b) {
  Formula f;
  f.inputs = {type(a).element.scalar, type(b).element.scalar};
  const int x = f.input(0), y = f.input(1);
  f.outputs = {f.op(op, x, y)};
  return map(std::move(f), {a, b});
}

ValueId Builder::select(ValueId c, ValueId a, ValueId b) {
  Formula f;
  f.inputs = {type(c).element.scalar, type(a).element.scalar, type(b).element.scalar};
  const int condition = f.input(0), x = f.input(1), y = f.input(2);
  f.outputs = {f.op(ScalarOp::select_, condition, x, y)};
  return map(std::move(f), {c, a, b});
}

ValueId Builder::convert(ValueId a, Scalar to) {
  if (type(a).element.scalar == to) return a;
  Formula f;
  f.inputs = {type(a).element.scalar};
  f.outputs = {f.convert(ScalarOp::cast_, to, f.input(0))};
  return map(std::move(f), {a});
}

}  // namespace lumen::graph
