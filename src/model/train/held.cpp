#include "model/train/held.h"

#include <algorithm>

#include "base/check.h"
#include "base/error.h"
#include "graph/ir/eval.h"

namespace lumen::model {

using graph::Builder;
using graph::Graph;
using graph::ValueId;

Scalar param_scalar(const std::string& name) {
  for (const Scalar s : {Scalar::f32, Scalar::bf16})
    if (name == scalar_name(s)) return s;
  throw Error(Exit::usage, fmt::format("param_type '{}' is not a type parameters can be held in", name),
              "known: f32, bf16 (stochastic rounding); --precision chooses what products are computed in");
}

Holding holding_of(const std::vector<Parameter>& parameters, Scalar type) {
  Holding held{type, {}};
  if (type == Scalar::f32) return held;
  for (const Parameter& p : parameters)
    if (p.shape.size() >= 2 && !p.frozen) held.names.push_back(p.name);
  return held;
}

Graph hold(Graph g, const Holding& held, std::map<std::string, ValueId>* values) {
  std::vector<ValueId> inputs;
  for (const std::string& name : held.names)
    if (const ValueId v = g.find_input(name); v >= 0) inputs.push_back(v);
  const auto shift = static_cast<ValueId>(inputs.size());
  if (shift == 0) return g;
  Graph out = g;
  out.nodes.clear();
  for (const ValueId v : inputs) {
    graph::Node node = g[v];
    node.type.element = {held.type, nullptr};
    out.nodes.push_back(std::move(node));
  }
  for (graph::Node& node : g.nodes) {
    for (ValueId& operand : node.operands) operand += shift;
    out.nodes.push_back(std::move(node));
  }
  for (ValueId& result : out.results) result += shift;
  for (ValueId i = 0; i < shift; ++i) {
    const ValueId was = inputs[static_cast<size_t>(i)] + shift;
    graph::Node cast;
    cast.op = graph::Op::cast_;
    cast.type = out[was].type;
    cast.operands = {i};
    cast.label = out[was].attributes.name;
    if (values) (*values)[out[i].attributes.name] = was;
    out[was] = std::move(cast);
  }
  return out;
}

ValueId round_stochastically(Builder& build, ValueId value, ValueId seed, uint32_t salt) {
  const ValueId random = build.random(seed, salt, build.type(value).shape);
  // bf16 is the upper half of f32: a random lower half is added and then cut off. What is not finite stays so.
  Formula f;
  f.inputs = {Scalar::f32, Scalar::f32};
  const int bits = f.convert(ScalarOp::bitcast_, Scalar::u32, f.input(0));
  const int low =
      f.convert(ScalarOp::cast_, Scalar::u32, f.op(ScalarOp::mul_, f.input(1), f.constant(Scalar::f32, 65536.0)));
  const int sum = f.op(ScalarOp::add_, bits, low);
  const int exponent = f.integer(Scalar::u32, 0x7f800000);
  const int is_special = f.op(ScalarOp::eq_, f.op(ScalarOp::and_, bits, exponent), exponent);
  const int chosen = f.op(ScalarOp::select_, is_special, bits, sum);
  const int cut = f.op(ScalarOp::and_, chosen, f.integer(Scalar::u32, 0xffff0000));
  f.outputs = {f.convert(ScalarOp::bitcast_, Scalar::f32, cut)};
  return build.cast(build.map(std::move(f), {value, random}), {Scalar::bf16, nullptr});
}

uint32_t rounding_seed(uint32_t run, int64_t step) {
  const float a = graph::uniform_random(run, 0x5eed, static_cast<uint64_t>(step));
  return run * 0x9e3779b9U + static_cast<uint32_t>(step) + static_cast<uint32_t>(a * 0x1p24F) * 0x85ebca6bU;
}

}  // namespace lumen::model
