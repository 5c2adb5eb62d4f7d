// Products whose rows pick matrices, as mixtures of experts have them: the first layer of experts, the second, the
// gradients of rows and of weights. Shared by the tests of synthesis and by tests/ladder.
#pragma once

#include "tests/kernel/synth/synth_harness.h"

namespace lumen::test {

struct Experts {
  int64_t rows = 8, picked = 2, experts = 4, wide = 24, deep = 40;  // w is [experts, wide, deep]
  FormatRef format = nullptr;
  Scalar scalar = Scalar::f32;  // of activations, and of a weight without a format
};

inline graph::ValueId weight_of(G& t, const Experts& e) {
  const std::vector<int64_t> shape{e.experts, e.wide, e.deep};
  if (e.format) return t.decoded(t.in("w", shape, e.format, graph::Role::parameter));
  return t.in("w", shape, e.scalar, graph::Role::parameter);
}
inline graph::ValueId picks_of(G& t, const Experts& e) {
  return t.in("picks", {e.rows, e.picked}, Scalar::i32);
}

// r[n,j,f] = h * tanh(h) * gate[n,j,f], h = x[n,:] . w[picks[n,j],f,:]: rows that all picks of a token share, an
// epilogue.
inline G first_of_experts(const Experts& e) {
  G t;
  const graph::ValueId x = t.in("x", {e.rows, e.deep}, e.scalar);
  const graph::ValueId h = t.b.contract_gather(x, weight_of(t, e), picks_of(t, e), "nk", "efk", "nj");
  const graph::ValueId gate = t.in("gate", {e.rows, e.picked, e.wide});
  t.out(t.b.mul(t.b.mul(h, t.b.unary(ScalarOp::tanh_, h)), gate));
  return t;
}

// r[n,j,f] = h[n,j,:] . w[picks[n,j],f,:]
inline G second_of_experts(const Experts& e) {
  G t;
  const graph::ValueId h = t.in("h", {e.rows, e.picked, e.deep}, e.scalar);
  t.out(t.b.contract_gather(h, weight_of(t, e), picks_of(t, e), "njk", "efk", "nj"));
  return t;
}

// r[n,j,k] = d[n,j,:] . w[picks[n,j],:,k]
inline G rows_gradient(const Experts& e) {
  G t;
  const graph::ValueId d = t.in("d", {e.rows, e.picked, e.wide}, e.scalar);
  t.out(t.b.contract_gather(d, weight_of(t, e), picks_of(t, e), "njf", "efk", "nj"));
  return t;
}

// r[e,f,k] = 0.5 * the sum of d[n,j,f] * x[n,k] over all that picked e
inline G weight_gradient(const Experts& e) {
  G t;
  const graph::ValueId d = t.in("d", {e.rows, e.picked, e.wide}, e.scalar), x = t.in("x", {e.rows, e.deep}, e.scalar);
  const graph::ValueId r = t.b.contract_scatter(d, x, picks_of(t, e), "njf", "nk", "nj", "efk", graph::Dim(e.experts));
  t.out(t.b.mul(r, t.b.scalar(0.5)));
  return t;
}

// Picks of which every third is none, or all.
inline std::vector<double> some_picks(const Experts& e, bool none = false) {
  std::vector<double> out;
  for (int64_t i = 0; i < e.rows * e.picked; ++i) out.push_back(none || i % 3 == 1 ? -1 - i % 2 : i * 7 % e.experts);
  return out;
}

inline std::vector<std::string> check_experts(const Experts& e, Check c, const Execute* execute = nullptr) {
  c.limits.try_emplace("picks", e.experts);
  std::vector<std::string> plans;
  for (const G& t : {first_of_experts(e), second_of_experts(e), rows_gradient(e)})
    for (std::string& p : check(t.g, c, execute)) plans.push_back(std::move(p));
  if (!e.format)
    for (std::string& p : check(weight_gradient(e).g, c, execute)) plans.push_back(std::move(p));
  return plans;
}

}  // namespace lumen::test
