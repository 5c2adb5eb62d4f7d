// A small transformer with its loss, written with the Builder: what gradients, passes and plans are tested on.
#pragma once

#include <cmath>
#include <map>
#include <random>
#include <string>

#include "graph/ir/build.h"
#include "graph/ir/eval.h"

namespace lumen::graph {

inline const Element kFloat{Scalar::f32, nullptr};
inline const Element kInt{Scalar::i32, nullptr};

inline ValueId rms_norm(Builder& b, ValueId x, ValueId w) {
  const Shape s = b.type(x).shape;
  const ValueId sum = b.reduce(b.mul(x, x), Reduction::sum, {-1});
  const ValueId mean = b.div(sum, b.scalar(static_cast<double>(s.back().number())));
  const ValueId norm = b.unary(ScalarOp::sqrt_, b.add(mean, b.scalar(1e-5)));
  return b.mul(b.div(x, norm), w);
}

inline ValueId softmax(Builder& b, ValueId x) {
  const ValueId e = b.unary(ScalarOp::exp_, b.sub(x, b.reduce(x, Reduction::max, {-1})));
  return b.div(e, b.reduce(e, Reduction::sum, {-1}));
}

struct BlockSizes {
  int64_t batch = 2, tokens = 5, heads = 4, groups = 2, head = 4, hidden = 12, vocabulary = 11;
};

// tokens -> embedding -> norm, grouped-query causal attention, residual, norm, gated unit, residual -> logits -> mean
// cross entropy. Returns the loss; logits by reference.
inline ValueId transformer(Builder& b, const BlockSizes& z, ValueId* logits = nullptr) {
  const int64_t width = z.heads * z.head, keys = z.groups * z.head, share = z.heads / z.groups;
  const auto parameter = [&](const char* name, Shape s) {
    return b.input(name, Role::parameter, {std::move(s), kFloat});
  };
  const ValueId tokens = b.input("tokens", Role::data, {{z.batch, z.tokens}, kInt});
  const ValueId targets = b.input("targets", Role::data, {{z.batch, z.tokens}, kInt});
  const ValueId embed = parameter("embed", {z.vocabulary, z.hidden});
  const ValueId n1 = parameter("n1", {z.hidden}), n2 = parameter("n2", {z.hidden});
  const ValueId wq = parameter("wq", {width, z.hidden}), wk = parameter("wk", {keys, z.hidden});
  const ValueId wv = parameter("wv", {keys, z.hidden}), wo = parameter("wo", {z.hidden, width});
  const ValueId up = parameter("up", {2 * z.hidden, z.hidden}), gate = parameter("gate", {2 * z.hidden, z.hidden});
  const ValueId down = parameter("down", {z.hidden, 2 * z.hidden});

  ValueId x = b.gather(embed, tokens);
  const ValueId h = rms_norm(b, x, n1);
  const ValueId q = b.reshape(b.contract(h, wq, "btk", "nk", "btn"), {z.batch, z.tokens, z.groups, share, z.head});
  const ValueId k = b.reshape(b.contract(h, wk, "btk", "nk", "btn"), {z.batch, z.tokens, z.groups, z.head});
  const ValueId v = b.reshape(b.contract(h, wv, "btk", "nk", "btn"), {z.batch, z.tokens, z.groups, z.head});
  ValueId s = b.mul(b.contract(q, k, "btghd", "bsgd", "bghts"), b.scalar(1 / std::sqrt(static_cast<double>(z.head))));
  const ValueId row = b.iota({{z.tokens, 1}, kInt}, 0), column = b.iota({{1, z.tokens}, kInt}, 1);
  s = b.select(b.binary(ScalarOp::le_, column, row), s, b.scalar(-1e30));
  const ValueId o = b.contract(softmax(b, s), v, "bghts", "bsgd", "btghd");
  x = b.add(x, b.contract(b.reshape(o, {z.batch, z.tokens, width}), wo, "btk", "nk", "btn"));

  const ValueId m = rms_norm(b, x, n2);
  const ValueId a = b.contract(m, gate, "btk", "nk", "btn");
  const ValueId silu = b.div(a, b.add(b.unary(ScalarOp::exp_, b.unary(ScalarOp::neg_, a)), b.scalar(1)));
  x = b.add(x, b.contract(b.mul(silu, b.contract(m, up, "btk", "nk", "btn")), down, "btk", "nk", "btn"));

  const ValueId l = b.contract(x, embed, "btk", "nk", "btn");
  if (logits) *logits = l;
  const ValueId top = b.reduce(l, Reduction::max, {-1});
  const ValueId total = b.reduce(b.unary(ScalarOp::exp_, b.sub(l, top)), Reduction::sum, {-1});
  const ValueId lse = b.add(b.unary(ScalarOp::log_, total), top);
  const ValueId hit =
      b.binary(ScalarOp::eq_, b.iota({{z.vocabulary}, kInt}, 0), b.reshape(targets, {z.batch, z.tokens, 1}));
  const ValueId chosen = b.reduce(b.select(hit, l, b.scalar(0)), Reduction::sum, {-1});
  const ValueId losses = b.reshape(b.sub(lse, chosen), {z.batch * z.tokens});
  const ValueId mean = b.div(b.reduce(losses, Reduction::sum, {0}), b.scalar(static_cast<double>(z.batch * z.tokens)));
  return b.reshape(mean, {});
}

// Normal numbers for floats, small indices for integers.
inline std::map<std::string, Tensor> random_inputs(const Graph& g, uint32_t seed, int64_t index_limit) {
  std::mt19937 random(seed);
  std::normal_distribution<double> normal(0, 0.5);
  std::map<std::string, Tensor> in;
  for (ValueId v : g.inputs()) {
    Tensor t{g[v].type, {}, {}};
    const int64_t n = elements(t.type.shape).number();
    for (int64_t k = 0; k < n; ++k) {
      t.values.push_back(is_float(t.type.element.scalar)
                             ? static_cast<float>(normal(random))
                             : static_cast<double>(random() % static_cast<uint32_t>(index_limit)));
    }
    in[g[v].attributes.name] = std::move(t);
  }
  return in;
}

}  // namespace lumen::graph
