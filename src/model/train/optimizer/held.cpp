#include "model/train/optimizer/held.h"

#include <algorithm>
#include <cmath>

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

Graph hold(Graph g, const Holding& held) {
  std::vector<ValueId> inputs;
  for (const std::string& name : held.names)
    if (const ValueId v = g.find_input(name); v >= 0) inputs.push_back(v);
  const ValueId shift = inputs.size();
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
    const ValueId was = inputs[i] + shift;
    graph::Node cast;
    cast.op = graph::Op::cast_;
    cast.type = out[was].type;
    cast.operands = {i};
    cast.label = out[was].attributes.name;
    out[was] = std::move(cast);
  }
  return out;
}

ValueId held_value(const Graph& g, ValueId input, const Holding& held) {
  const std::vector<std::string>& names = held.names;
  if (std::find(names.begin(), names.end(), g[input].attributes.name) == names.end()) return input;
  for (ValueId v = input + 1; v < static_cast<ValueId>(g.nodes.size()); ++v)
    if (g[v].op == graph::Op::cast_ && g[v].operands[0] == input && g[v].label == g[input].attributes.name) return v;
  LUMEN_CHECK(false, "{} is not held", g[input].attributes.name);
  return -1;
}

ValueId round_mantissa(Builder& build, ValueId value, int bits, ValueId seed, uint32_t salt) {
  const ValueId random = build.random(seed, salt, build.type(value).shape);
  // A random number is added to the bits that go, which are then cut off.
  const int gone = 23 - bits;
  Formula f;
  f.inputs = {Scalar::f32, Scalar::f32};
  const int number = f.convert(ScalarOp::bitcast_, Scalar::u32, f.input(0));
  const int low = f.convert(ScalarOp::cast_, Scalar::u32,
                            f.op(ScalarOp::mul_, f.input(1), f.constant(Scalar::f32, std::ldexp(1.0, gone))));
  const int sum = f.op(ScalarOp::add_, number, low);
  const int exponent = f.integer(Scalar::u32, 0x7f800000);
  const int own = f.op(ScalarOp::and_, number, exponent);
  const int is_special = f.op(ScalarOp::eq_, own, exponent);
  const int chosen = f.op(ScalarOp::select_, is_special, number, sum);
  const int cut = f.op(ScalarOp::and_, chosen, f.integer(Scalar::u32, ~((int64_t{1} << gone) - 1) & 0xffffffff));
  f.outputs = {f.convert(ScalarOp::bitcast_, Scalar::f32, cut)};
  return build.map(std::move(f), {value, random});
}

ValueId round_stochastically(Builder& build, ValueId value, ValueId seed, uint32_t salt) {
  constexpr int kBits = 7;  // of bf16, the upper half of f32
  return build.cast(round_mantissa(build, value, kBits, seed, salt), {Scalar::bf16, nullptr});
}

uint32_t rounding_seed(uint32_t run, int64_t step) {
  const float a = graph::uniform_random(run, 0x5eed, step);
  return run * 0x9e3779b9U + step + static_cast<uint32_t>(a * 0x1p24F) * 0x85ebca6bU;
}

}  // namespace lumen::model
