// Blocks of a transformer that ranks can share, and their steps.
#pragma once

#include "graph/grad/grad.h"
#include "graph/ir/build.h"

namespace lumen::graph {

inline const Element kF32{Scalar::f32, nullptr}, kI32{Scalar::i32, nullptr};

// x + down(silu(gate x) * up x), then the sum of squares.
inline Graph feed_forward(bool fused) {
  Graph g;
  Builder b(g);
  ValueId x = b.input("x", Role::data, {{3, 4}, kF32});
  const ValueId w = b.input("w", Role::parameter, {{4}, kF32});
  const ValueId h = b.mul(x, w);
  ValueId gate = -1, up = -1;
  if (fused) {
    const ValueId both = b.contract(h, b.input("both", Role::parameter, {{16, 4}, kF32}), "tk", "nk", "tn");
    gate = b.slice(both, {0, 0}, {3, 8});
    up = b.slice(both, {0, 8}, {3, 8});
  } else {
    gate = b.contract(h, b.input("gate", Role::parameter, {{8, 4}, kF32}), "tk", "nk", "tn");
    up = b.contract(h, b.input("up", Role::parameter, {{8, 4}, kF32}), "tk", "nk", "tn");
  }
  up = b.add(up, b.input("bias", Role::parameter, {{8}, kF32}));
  const ValueId inner = b.mul(b.unary(ScalarOp::tanh_, gate), up);
  const ValueId y = b.contract(inner, b.input("down", Role::parameter, {{4, 8}, kF32}), "tk", "nk", "tn");
  x = b.add(x, y);
  g.results = {b.reshape(b.reduce(b.mul(x, x), Reduction::sum, {0, 1}), {})};
  g.result_names = {"loss"};
  return g;
}

// One block of attention with 4 heads over 2 keys' heads, whose rows come of a table, and the cross entropy of what
// the table makes of it.
inline Graph attention(bool fused) {
  constexpr int64_t kB = 2, kT = 3, kE = 8, kKV = 2, kG = 2, kD = 2;
  Graph g;
  Builder b(g);
  const ValueId tokens = b.input("tokens", Role::data, {{kB, kT}, kI32});
  const ValueId table = b.input("table", Role::parameter, {{12, kE}, kF32});
  ValueId x = b.gather(table, tokens);
  const auto heads = [&](const char* name, int64_t count) {
    return b.contract(x, b.input(name, Role::parameter, {{count * kD, kE}, kF32}), "btk", "nk", "btn");
  };
  ValueId q = -1, k = -1, v = -1;
  if (fused) {
    const ValueId all = heads("wqkv", kKV * kG + 2 * kKV);
    q = b.slice(all, {0, 0, 0}, {kB, kT, kKV * kG * kD});
    k = b.slice(all, {0, 0, kKV * kG * kD}, {kB, kT, kKV * kD});
    v = b.slice(all, {0, 0, kKV * kG * kD + kKV * kD}, {kB, kT, kKV * kD});
  } else {
    q = heads("wq", kKV * kG);
    k = heads("wk", kKV);
    v = heads("wv", kKV);
  }
  q = b.reshape(q, {kB, kT, kKV, kG, kD});
  k = b.reshape(k, {kB, kT, kKV, kD});
  v = b.reshape(v, {kB, kT, kKV, kD});
  const ValueId scores = b.contract(q, k, "btkgd", "bskd", "bkgts");
  const ValueId e = b.unary(ScalarOp::exp_, b.sub(scores, b.reduce(scores, Reduction::max, {-1})));
  const ValueId p = b.div(e, b.reduce(e, Reduction::sum, {-1}));
  const ValueId o = b.reshape(b.contract(p, v, "bkgts", "bskd", "btkgd"), {kB, kT, kKV * kG * kD});
  x = b.add(x, b.contract(o, b.input("wo", Role::parameter, {{kE, kKV * kG * kD}, kF32}), "btk", "nk", "btn"));
  const ValueId logits = b.reshape(b.contract(x, table, "btk", "nk", "btn"), {kB * kT, 12});
  const ValueId top = b.reduce(logits, Reduction::max, {-1});
  const ValueId sum = b.reduce(b.unary(ScalarOp::exp_, b.sub(logits, top)), Reduction::sum, {-1});
  const ValueId wanted = b.reshape(tokens, {kB * kT, 1});
  const ValueId hit = b.binary(ScalarOp::eq_, b.iota({{kB * kT, 12}, kI32}, 1), wanted);
  const ValueId picked = b.reduce(b.select(hit, logits, b.scalar(0)), Reduction::sum, {-1});
  const ValueId losses = b.sub(b.add(b.unary(ScalarOp::log_, sum), top), picked);
  g.results = {b.reshape(b.reduce(losses, Reduction::sum, {0, 1}), {})};
  g.result_names = {"loss"};
  return g;
}

// A step of gradients, their norm and updates.
inline Graph step_of(Graph g) {
  std::vector<ValueId> parameters;
  for (const ValueId v : g.inputs())
    if (g[v].attributes.role == Role::parameter) parameters.push_back(v);
  const std::vector<ValueId> gradients = differentiate(g, g.results[0], parameters);
  Builder b(g);
  ValueId total = -1;
  for (const ValueId d : gradients) {
    std::vector<int> axes(b.type(d).shape.size());
    for (size_t i = 0; i < axes.size(); ++i) axes[i] = static_cast<int>(i);
    const ValueId sum = b.reshape(b.reduce(b.mul(d, d), Reduction::sum, axes), {});
    total = total < 0 ? sum : b.add(total, sum);
  }
  for (size_t i = 0; i < parameters.size(); ++i) {
    b.update(parameters[i], b.sub(parameters[i], b.mul(gradients[i], b.div(b.scalar(0.5), total))));
    g.results.push_back(gradients[i]);
    g.result_names.push_back(g[parameters[i]].attributes.name);
  }
  g.results.push_back(total);
  g.result_names.emplace_back("norm");
  return g;
}

}  // namespace lumen::graph
