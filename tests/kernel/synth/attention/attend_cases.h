// Graphs with an attention, and with its gradient, for the tests of synthesis and the ladder.
#pragma once

#include <array>

#include "graph/grad/reverse.h"
#include "tests/kernel/synth/synth_harness.h"

namespace lumen::test {

struct AttentionCase {
  int64_t batch = 1, queries = 1, keys = 1, groups = 1, repeat = 1, depth = 16, width = 16;
  FormatRef format = nullptr;  // of keys and values
  int64_t window = 0;
  bool bias = false;  // added to the scores: one number for each head, query and key
};

// q [b, t, h, d], k and v [b, s, g, d] with h = g * r query heads; keys beyond `start` + t masked, and where there is a
// window those before `start` + t - window + 1.
inline G attention_graph(const AttentionCase& c) {
  using graph::Reduction;
  using graph::ValueId;
  const auto& [batch, queries, keys, groups, repeat, depth, width, format, window, bias] = c;
  G t;
  ValueId q = t.in("q", {batch, queries, groups, repeat, depth});
  ValueId k =
      format ? t.decoded(t.in("k", {batch, keys, groups, depth}, format)) : t.in("k", {batch, keys, groups, depth});
  ValueId v =
      format ? t.decoded(t.in("v", {batch, keys, groups, width}, format)) : t.in("v", {batch, keys, groups, width});
  const ValueId start = t.in("start", {}, Scalar::i32);
  ValueId s = t.b.mul(t.b.contract(q, k, "btgrd", "bsgd", "bgrts"), t.b.scalar(0.125));
  if (bias) s = t.b.add(s, t.in("bias", {groups, repeat, queries, keys}));
  const auto type = G::type({queries, keys}, Scalar::i32);
  const ValueId row = t.b.iota(type, 0), column = t.b.iota(type, 1);
  Formula mask;  // column <= row + start and row + start < column + window
  mask.inputs = {Scalar::i32, Scalar::i32, Scalar::i32};
  const int at = mask.op(ScalarOp::add_, mask.input(0), mask.input(2)), key = mask.input(1);
  int visible = mask.op(ScalarOp::le_, key, at);
  if (window > 0) {
    const int end = mask.op(ScalarOp::add_, key, mask.integer(Scalar::i32, window));
    visible = mask.op(ScalarOp::and_, visible, mask.op(ScalarOp::lt_, at, end));
  }
  mask.outputs = {visible};
  const ValueId seen = t.b.map(mask, {row, column, start});
  s = t.b.select(seen, s, t.b.scalar(-1e30));
  const ValueId e = t.b.unary(ScalarOp::exp_, t.b.sub(s, t.b.reduce(s, Reduction::max, {4})));
  const ValueId p = t.b.div(e, t.b.reduce(e, Reduction::sum, {4}));
  t.out(t.b.contract(p, v, "bgrts", "bsgd", "btgrd"));
  return t;
}

// The gradients of q, k and v in one kernel, and the attention itself in another.
inline G gradient_graph(int64_t batch, int64_t length, int64_t groups, int64_t repeat, int64_t depth, int64_t width) {
  using graph::Reduction;
  using graph::ValueId;
  G t;
  const ValueId pairs = t.in("q", {batch, length, groups, repeat, depth / 2, 2});
  const ValueId q = t.b.reshape(pairs, G::shape({batch, length, groups, repeat, depth}));
  const ValueId k = t.in("k", {batch, length, groups, depth}), v = t.in("v", {batch, length, groups, width});
  const ValueId weight = t.in("weight", {batch, length, groups, repeat, width});
  const auto type = G::type({length, length}, Scalar::i32);
  const ValueId seen = t.b.binary(ScalarOp::le_, t.b.iota(type, 1), t.b.iota(type, 0));
  ValueId s = t.b.mul(t.b.contract(q, k, "btgrd", "bsgd", "bgrts"), t.b.scalar(0.3));
  s = t.b.select(seen, s, t.b.scalar(-1e30));
  const ValueId e = t.b.unary(ScalarOp::exp_, t.b.sub(s, t.b.reduce(s, Reduction::max, {4})));
  const ValueId p = t.b.div(e, t.b.reduce(e, Reduction::sum, {4}));
  const ValueId o = t.b.contract(p, v, "bgrts", "bsgd", "btgrd");
  const ValueId loss = t.b.reshape(t.b.reduce(t.b.mul(o, weight), Reduction::sum, {0, 1, 2, 3, 4}), {});
  for (const ValueId d : graph::differentiate(t.g, loss, {pairs, k, v})) t.out(d);
  t.out(o);
  graph::simplify(t.g);
  graph::split_contracts(t.g);
  graph::simplify(t.g);
  return t;
}

// Keys and values of `texts` that lie anywhere among `places`, found by a table of places; each query has a position.
struct TableCase {
  int64_t texts = 1, queries = 1, keys = 8, places = 40, groups = 1, repeat = 1, depth = 16;
  FormatRef format = nullptr;
  int64_t window = 0;
  bool same = false;  // values are the first half of each key
};

inline G table_graph(const TableCase& c) {
  using graph::Reduction;
  using graph::ValueId;
  G t;
  const auto cache = [&](const char* name) {
    const std::vector<int64_t> shape = {3, c.groups, c.places, c.depth};
    const ValueId all = c.format ? t.decoded(t.in(name, shape, c.format)) : t.in(name, shape);
    const ValueId one = t.b.slice(all, {1, 0, 0, 0}, G::shape({1, c.groups, c.places, c.depth}));
    return t.b.permute(t.b.reshape(one, G::shape({c.groups, c.places, c.depth})), {1, 0, 2});
  };
  const ValueId q = t.in("q", {c.texts, c.queries, c.groups, c.repeat, c.depth});
  const ValueId table = t.in("table", {c.texts, c.keys}, Scalar::i32);
  const ValueId k = t.b.gather(cache("k"), table);
  const ValueId v = c.same ? t.b.slice(k, {0, 0, 0, 0}, G::shape({c.texts, c.keys, c.groups, c.depth / 2}))
                           : t.b.gather(cache("v"), table);
  const ValueId positions =
      t.b.reshape(t.in("positions", {c.texts, c.queries}, Scalar::i32), G::shape({c.texts, 1, 1, c.queries, 1}));
  ValueId s = t.b.mul(t.b.contract(q, k, "btgrd", "bsgd", "bgrts"), t.b.scalar(0.25));
  const ValueId key = t.b.iota(G::type({1, 1, 1, 1, c.keys}, Scalar::i32), 4);
  Formula mask;
  mask.inputs = {Scalar::i32, Scalar::i32, Scalar::f32};
  int visible = mask.op(ScalarOp::le_, mask.input(0), mask.input(1));
  if (c.window > 0) {
    const int end = mask.op(ScalarOp::add_, mask.input(0), mask.integer(Scalar::i32, c.window));
    visible = mask.op(ScalarOp::and_, visible, mask.op(ScalarOp::lt_, mask.input(1), end));
  }
  mask.outputs = {mask.op(ScalarOp::select_, visible, mask.input(2), mask.constant(Scalar::f32, -1e30))};
  s = t.b.map(mask, {key, positions, s});
  const ValueId e = t.b.unary(ScalarOp::exp_, t.b.sub(s, t.b.reduce(s, Reduction::max, {4})));
  const ValueId p = t.b.div(e, t.b.reduce(e, Reduction::sum, {4}));
  t.out(t.b.contract(p, v, "bgrts", "bsgd", "btgrd"));
  return t;
}

// What kernels of blocks are tried on: whole and broken tiles, shared keys, windows, a bias, a long text's next
// positions, keys in a format.
inline std::vector<AttentionCase> block_attentions() {
  return {{.batch = 2, .queries = 130, .keys = 130, .groups = 2, .repeat = 2, .depth = 128, .width = 128},
          {.queries = 100, .keys = 333, .groups = 2, .depth = 64, .width = 64, .window = 50},
          {.queries = 70, .keys = 70, .groups = 3, .depth = 80, .width = 80, .bias = true},
          {.queries = 65, .keys = 65, .depth = 256, .width = 256},
          {.queries = 1, .keys = 2000, .groups = 2, .repeat = 4, .depth = 128, .width = 128},
          {.batch = 3, .queries = 2, .keys = 700, .groups = 1, .repeat = 1, .depth = 96, .width = 96},
          {.queries = 3, .keys = 600, .groups = 2, .depth = 128, .width = 128, .format = format_named("q8_0")},
          {.queries = 17, .keys = 19, .groups = 1, .repeat = 3, .depth = 7, .width = 9, .bias = true}};
}
// batch, length, groups, repeat, depth, width
inline std::vector<std::array<int64_t, 6>> block_gradients() {
  return {{2, 130, 2, 2, 64, 64}, {1, 200, 1, 3, 128, 128}, {1, 67, 1, 1, 80, 80}, {1, 40, 2, 1, 10, 6}};
}
// Of results whose factors are rounded to a type; the sums' order is the hardware's. Of these gradients' sums, terms
// are up to ten times their result.
inline double block_tolerance(Scalar products, bool gradient) {
  if (products == Scalar::f32) return 5e-5;
  return gradient ? 0.15 : 4e-2;
}

}  // namespace lumen::test
