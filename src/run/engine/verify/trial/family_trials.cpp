// Trials of kernels other than plain products, as used by a model and its training.
#include <cmath>

#include "graph/grad/reverse.h"
#include "graph/ir/build.h"
#include "run/engine/verify/trial/trial.h"

namespace lumen::run {
namespace {

using graph::Builder;
using graph::Reduction;
using graph::Role;
using graph::ValueId;

// exp, tanh, rsqrt and similar functions differ from the evaluator's by a few units in the last place; for an argument
// of magnitude m that becomes an exponent, by m times as many. 16 units of f32 cover the functions here, whose
// arguments stay below 8.
constexpr double kFunctionUnits = 16 * 8 * 0x1p-24;

graph::Type numbers_type(std::vector<int64_t> dims, Scalar scalar = Scalar::f32) {
  graph::Type t;
  for (const int64_t d : dims) t.shape.emplace_back(d);
  t.element.scalar = scalar;
  return t;
}

void name_results(graph::Graph& g) {
  for (size_t i = 0; i < g.results.size(); ++i) g.result_names.push_back(fmt::format("r{}", i));
}

Trial map_trial() {
  Trial t{.what = "map"};
  Builder b(t.graph);
  const ValueId x = b.input("x", Role::data, numbers_type({7, 37})), y = b.input("y", Role::data, numbers_type({37}));
  t.graph.results = {b.unary(ScalarOp::tanh_, b.add(b.mul(x, b.mul(y, b.scalar(1.0 / 64))), b.scalar(0.25)))};
  t.units = kFunctionUnits;
  return t;
}

// To 16 bits and back, including ties: bit for bit.
Trial round_trial() {
  Trial t{.what = "map: rounded to 16 bits"};
  Builder b(t.graph);
  const ValueId x = b.input("x", Role::data, numbers_type({11, 52}));
  for (const Scalar s : {Scalar::bf16, Scalar::f16}) t.graph.results.push_back(b.convert(b.convert(x, s), Scalar::f32));
  t.numbers["x"] = TrialNumbers::ties;
  return t;
}

// Log-sum-exp and softmax, the parts of a loss.
Trial softmax_trial() {
  Trial t{.what = "reduce: softmax and loss"};
  Builder b(t.graph);
  const ValueId x = b.input("x", Role::data, numbers_type({19, 301}));
  const ValueId far = b.sub(x, b.reduce(x, Reduction::max, {1}));
  const ValueId e = b.unary(ScalarOp::exp_, far), sum = b.reduce(e, Reduction::sum, {1});
  t.graph.results = {b.div(e, sum), b.sub(b.unary(ScalarOp::log_, sum), far)};
  t.numbers["x"] = TrialNumbers::normal;
  t.units = 2 * kFunctionUnits + units_of_sum(301);
  return t;
}

// x / sqrt(mean(x^2)) * w, by rows; and the sum over rows, as gradients of w are summed.
Trial norm_trial() {
  Trial t{.what = "reduce: norm"};
  Builder b(t.graph);
  const int64_t columns = 203;
  const ValueId x = b.input("x", Role::data, numbers_type({23, columns})),
                w = b.input("w", Role::parameter, numbers_type({columns}));
  const ValueId squares = b.mul(b.reduce(b.mul(x, x), Reduction::sum, {1}), b.scalar(1.0 / double(columns)));
  const ValueId normed = b.mul(b.div(x, b.unary(ScalarOp::sqrt_, b.add(squares, b.scalar(1e-6)))), w);
  t.graph.results = {normed, b.reduce(b.mul(x, x), Reduction::sum, {0})};
  t.numbers = {{"x", TrialNumbers::normal}, {"w", TrialNumbers::present}};
  t.units = kFunctionUnits + units_of_sum(columns);
  return t;
}

Trial move_trial() {
  Trial t{.what = "move: gather, turn, join"};
  Builder b(t.graph);
  t.table = 13;
  const ValueId table = b.input("table", Role::parameter, numbers_type({t.table, 24}));
  const ValueId rows = b.gather(table, b.input("index", Role::data, numbers_type({5, 7}, Scalar::i32)));
  t.graph.results = {b.concat(
      {b.permute(rows, {1, 0, 2}), b.permute(b.input("y", Role::data, numbers_type({3, 7, 24})), {1, 0, 2})}, 1)};
  t.numbers["index"] = TrialNumbers::indices;
  return t;
}

Trial scatter_trial() {
  Trial t{.what = "move: scatter"};
  Builder b(t.graph);
  t.table = 13;
  const ValueId x = b.input("x", Role::data, numbers_type({35, 24}));
  t.graph.results = {
      b.scatter_add(x, b.input("index", Role::data, numbers_type({35}, Scalar::i32)), graph::Dim(t.table))};
  t.numbers["index"] = TrialNumbers::indices;
  return t;  // integers: exact in any order
}

struct AttentionShape {
  int64_t length = 21, depth = 16;
};

// Causal attention with two heads on one key head. `weights` receives the attention weights.
ValueId attention_of(Builder& b, const AttentionShape& shape, ValueId q, ValueId k, ValueId v, ValueId* weights) {
  const graph::Type square = numbers_type({shape.length, shape.length}, Scalar::i32);
  const ValueId seen = b.binary(ScalarOp::le_, b.iota(square, 1), b.iota(square, 0));
  ValueId s = b.mul(b.contract(q, k, "btgrd", "bsgd", "bgrts"), b.scalar(1.0 / (32 * std::sqrt(double(shape.depth)))));
  s = b.select(seen, s, b.scalar(-1e30));
  const ValueId e = b.unary(ScalarOp::exp_, b.sub(s, b.reduce(s, Reduction::max, {4})));
  *weights = b.div(e, b.reduce(e, Reduction::sum, {4}));
  return b.contract(*weights, v, "bgrts", "bsgd", "btgrd");
}

struct AttentionInputs {
  ValueId q, k, v;
};
AttentionInputs attention_inputs(Builder& b, const AttentionShape& s) {
  return {b.input("q", Role::data, numbers_type({1, s.length, 1, 2, s.depth})),
          b.input("k", Role::data, numbers_type({1, s.length, 1, s.depth})),
          b.input("v", Role::data, numbers_type({1, s.length, 1, s.depth}))};
}

// Queries, keys and values are exact in 16 bits; attention weights are rounded before and after their division, at
// most. The result is a sum of products of two numbers, each rounded once.
Trial attend_trial(Scalar products, const AttentionShape& shape) {
  Trial t{.what = fmt::format("attend {}", scalar_name(products))};
  t.options.products = products;
  ValueId weights = -1;
  {
    Builder b(t.graph);
    const auto [q, k, v] = attention_inputs(b, shape);
    t.graph.results = {attention_of(b, shape, q, k, v, &weights)};
  }
  Builder b(t.magnitude);
  const auto [q, k, v] = attention_inputs(b, shape);
  t.magnitude.results = {attention_of(b, shape, q, k, b.unary(ScalarOp::abs_, v), &weights)};
  t.units = 2 * units_of(products) + kFunctionUnits + units_of_sum(2 * shape.length);
  return t;
}

// With respect to the queries: dQ = ds K with ds = p (dp - sum p dp), dp = dO V^T. Rounded once each: operands of dO
// V^T (exact here), p, ds; dp is summed in f32. The magnitude of each sum is that with all terms positive.
Trial attend_gradient_trial(Scalar products, const AttentionShape& shape) {
  Trial t{.what = fmt::format("attend gradient {}", scalar_name(products))};
  t.options.products = products;
  const graph::Type type = numbers_type({1, shape.length, 1, 2, shape.depth});
  ValueId weights = -1;
  {
    Builder b(t.graph);
    const auto [q, k, v] = attention_inputs(b, shape);
    const ValueId o = attention_of(b, shape, q, k, v, &weights);
    const ValueId given = b.input("given", Role::data, type);
    const ValueId loss = b.reshape(b.reduce(b.mul(o, given), Reduction::sum, {0, 1, 2, 3, 4}), {});
    t.graph.results = {graph::differentiate(t.graph, loss, {q})[0]};
  }
  Builder b(t.magnitude);
  const auto [q, k, v] = attention_inputs(b, shape);
  attention_of(b, shape, q, k, v, &weights);
  const ValueId given = b.unary(ScalarOp::abs_, b.input("given", Role::data, type));
  const ValueId dp = b.contract(given, b.unary(ScalarOp::abs_, v), "btgrd", "bsgd", "bgrts");
  const ValueId mixed = b.mul(weights, dp);
  const ValueId ds = b.add(mixed, b.mul(weights, b.reduce(mixed, Reduction::sum, {4})));
  const ValueId scaled = b.mul(ds, b.scalar(1.0 / (32 * std::sqrt(double(shape.depth)))));
  t.magnitude.results = {b.contract(scaled, b.unary(ScalarOp::abs_, k), "bgrts", "bsgd", "btgrd")};
  t.units = 3 * units_of(products) + 2 * kFunctionUnits + units_of_sum(4 * shape.length + shape.depth);
  return t;
}

// Three steps of momentum and a second moment over a parameter: states persist between runs, which devices record after
// the first.
Trial update_trial() {
  Trial t{.what = "update: an optimizer's step, recorded"};
  Builder b(t.graph);
  const graph::Type type = numbers_type({37, 29});
  const ValueId w = b.input("w", Role::state, type), m = b.input("m", Role::state, type),
                v = b.input("v", Role::state, type), x = b.input("x", Role::data, numbers_type({11, 29}));
  const ValueId y = b.contract(x, w, "bk", "nk", "bn");
  const ValueId loss = b.reshape(b.reduce(b.mul(y, y), Reduction::sum, {0, 1}), {});
  const ValueId g = b.mul(graph::differentiate(t.graph, loss, {w})[0], b.scalar(0x1p-10));
  const ValueId m1 = b.add(b.mul(m, b.scalar(0.875)), b.mul(g, b.scalar(0.125)));
  const ValueId v1 = b.add(b.mul(v, b.scalar(0.75)), b.mul(b.mul(g, g), b.scalar(0.25)));
  const ValueId far = b.mul(b.div(m1, b.add(b.unary(ScalarOp::sqrt_, v1), b.scalar(1))), b.scalar(0.25));
  t.graph.results = {b.update(w, b.sub(w, far)), b.update(m, m1), b.update(v, v1)};
  t.numbers["v"] = TrialNumbers::present;
  t.runs = 3;
  // The magnitude of each state in a step with all terms positive; gradients grow by less than half in three steps.
  Builder c(t.magnitude);
  const auto size = [&](const char* name, Role role, graph::Type of) {
    return c.unary(ScalarOp::abs_, c.input(name, role, std::move(of)));
  };
  const ValueId w1 = size("w", Role::state, type), m2 = size("m", Role::state, type), v2 = size("v", Role::state, type),
                x1 = size("x", Role::data, numbers_type({11, 29}));
  const ValueId g1 =
      c.mul(c.contract(c.contract(x1, w1, "bk", "nk", "bn"), x1, "bn", "bk", "nk"), c.scalar(2 * 1.5 * 0x1p-10));
  const ValueId m3 = c.add(m2, g1), v3 = c.add(v2, c.mul(g1, g1));
  t.magnitude.results = {c.add(w1, c.mul(m3, c.scalar(0.25 * double(t.runs)))), m3, v3};
  t.units = 2 * double(t.runs) * units_of_sum(11 + 29 + 8);
  return t;
}

// A chain of dependent kernels, repeated: with early start, kernels must wait themselves.
Trial chain_trial() {
  Trial t{.what = "step: kernels in a chain, recorded, early start"};
  Builder b(t.graph);
  const int64_t n = 48;
  const ValueId x = b.input("x", Role::state, numbers_type({n, n})),
                w = b.input("w", Role::parameter, numbers_type({n, n}));
  ValueId y = x;
  for (int i = 0; i < 4; ++i) {
    y = b.contract(y, w, "mk", "nk", "mn");
    // Back to integers below 8: exact, so every bit counts.
    y = b.sub(y, b.mul(b.unary(ScalarOp::floor_, b.mul(y, b.scalar(0.125))), b.scalar(8)));
  }
  t.graph.results = {b.update(x, y)};
  t.runs = 5;
  return t;
}

}  // namespace

std::vector<Trial> family_trials(const machine::Machine& machine, TrialDepth depth) {
  std::vector<Trial> out;
  out.push_back(map_trial());
  out.push_back(round_trial());
  out.push_back(softmax_trial());
  out.push_back(norm_trial());
  out.push_back(move_trial());
  out.push_back(scatter_trial());
  const bool all = depth != TrialDepth::first_use, on_gpu = machine.kind == machine::Kind::gpu;
  out.push_back(attend_trial(Scalar::f32, {}));
  // Few keys use row-wise attention; many use blocks, with matrix instructions on GPUs.
  const AttentionShape many{.length = all ? 80 : 64, .depth = 32};
  for (const Scalar s : {Scalar::bf16, Scalar::f16}) {
    if (!all && (!on_gpu || s == Scalar::f16)) continue;
    out.push_back(attend_trial(s, many));
    out.push_back(attend_gradient_trial(s, many));
  }
  if (all) out.push_back(attend_gradient_trial(Scalar::f32, {}));
  out.push_back(update_trial());
  out.push_back(chain_trial());
  for (Trial& t : out) {
    name_results(t.graph);
    name_results(t.magnitude);
  }
  return out;
}

}  // namespace lumen::run
