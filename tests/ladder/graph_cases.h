// Random graphs for the ladder: trees of elementwise operations that end in a reduction, and attentions.
#pragma once

#include "tests/kernel/synth/synth_harness.h"

namespace lumen::test {

using graph::Reduction;
using graph::ValueId;

inline const std::vector<int64_t> kExtents = {1, 2, 3, 5, 7, 8, 13, 16, 17, 31, 32, 33, 64};

struct Random {
  std::mt19937 engine;
  int64_t below(int64_t n) { return static_cast<int64_t>(engine() % static_cast<uint64_t>(n)); }
  int64_t extent() { return kExtents[static_cast<size_t>(below(static_cast<int64_t>(kExtents.size())))]; }
};

// A random tree of operations of one shape over inputs that broadcast to it, sometimes read through a view.
inline ValueId tree(G& t, Random& r, const std::vector<int64_t>& shape, int depth, int* inputs) {
  if (depth == 0) {
    std::vector<int64_t> own = shape;
    for (int64_t& e : own)
      if (r.below(4) == 0) e = 1;
    while (own.size() > 1 && r.below(4) == 0) own.erase(own.begin());
    const std::string name = "x" + std::to_string((*inputs)++);
    if (own.size() >= 2 && r.below(3) == 0) {  // stored transposed
      std::vector<int64_t> stored = own;
      std::swap(stored[stored.size() - 1], stored[stored.size() - 2]);
      std::vector<int> axes(own.size());
      for (size_t d = 0; d < own.size(); ++d) axes[d] = static_cast<int>(d);
      std::swap(axes[axes.size() - 1], axes[axes.size() - 2]);
      return t.b.permute(t.in(name, stored), axes);
    }
    return t.in(name, own);
  }
  const ValueId a = tree(t, r, shape, depth - 1, inputs);
  switch (r.below(6)) {
    case 0:
      return t.b.add(a, tree(t, r, shape, depth - 1, inputs));
    case 1:
      return t.b.mul(a, tree(t, r, shape, depth - 1, inputs));
    case 2:
      return t.b.sub(tree(t, r, shape, depth - 1, inputs), a);
    case 3:
      return t.b.unary(ScalarOp::tanh_, a);
    case 4:
      return t.b.select(t.b.binary(ScalarOp::lt_, a, t.b.scalar(0)), a, tree(t, r, shape, depth - 1, inputs));
    default:
      return t.b.unary(ScalarOp::exp_, t.b.unary(ScalarOp::tanh_, a));
  }
}

inline G random_graph(uint32_t seed) {
  Random r{std::mt19937(seed)};
  std::vector<int64_t> shape;
  for (int64_t k = 1 + r.below(4); k > 0; --k) shape.push_back(r.extent());
  while (shape.size() > 1 && graph::elements(G::shape(shape)).number() > 200000) shape.pop_back();
  G t;
  int inputs = 0;
  const ValueId x = tree(t, r, shape, 2, &inputs);
  const int rank = static_cast<int>(t.b.type(x).shape.size());
  std::vector<int> axes;
  for (int d = 0; d < rank; ++d)
    if (r.below(2) == 0) axes.push_back(d);
  if (axes.empty()) axes.push_back(rank - 1);
  const ValueId reduced = t.b.reduce(x, static_cast<Reduction>(r.below(3)), axes);
  t.out(t.b.mul(reduced, t.b.scalar(0.5)));
  if (r.below(2) == 0) t.out(x);
  if (r.below(2) == 0) t.out(t.b.sub(x, reduced));
  return t;
}

inline G attention(int64_t queries, int64_t keys, int64_t depth) {
  G t;
  const ValueId q = t.in("q", {2, queries, 3, depth}), k = t.in("k", {2, keys, 3, depth}),
                v = t.in("v", {2, keys, 3, depth});
  const ValueId s = t.b.mul(t.b.contract(q, k, "bthd", "bshd", "bhts"), t.b.scalar(0.25));
  const ValueId e = t.b.unary(ScalarOp::exp_, t.b.sub(s, t.b.reduce(s, Reduction::max, {3})));
  t.out(t.b.contract(t.b.div(e, t.b.reduce(e, Reduction::sum, {3})), v, "bhts", "bshd", "bthd"));
  return t;
}
inline const std::vector<std::array<int64_t, 3>> kAttentions = {{1, 1, 16}, {5, 17, 24}, {9, 40, 64}};

}  // namespace lumen::test
