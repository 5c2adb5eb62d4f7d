// Needs: none. Elementwise groups against the graph evaluator: broadcasting, views, tails, several results, states,
// random numbers.
#include "tests/kernel/synth/synth_harness.h"

namespace lumen::test {
namespace {

using graph::ValueId;

const std::vector<std::vector<int64_t>> kShapes = {{1},      {7},        {8},          {64},    {131},     {3, 5},
                                                   {17, 16}, {5, 1, 33}, {2, 3, 4, 9}, {40000}, {3, 20011}};

TEST(SynthMap, OneOperationOnEveryShape) {
  for (const auto& s : kShapes) {
    G t;
    const ValueId x = t.in("x", s), y = t.in("y", s);
    t.out(t.b.mul(t.b.add(x, y), x));
    check(t.g);
  }
}

TEST(SynthMap, Broadcasting) {
  for (const auto& [a, c] :
       std::vector<std::pair<std::vector<int64_t>, std::vector<int64_t>>>{{{6, 37}, {37}},
                                                                          {{6, 37}, {6, 1}},
                                                                          {{4, 6, 37}, {6, 1}},
                                                                          {{4, 6, 37}, {4, 1, 37}},
                                                                          {{4, 6, 37}, {}},
                                                                          {{4, 1, 8}, {4, 9, 1}}}) {
    G t;
    const ValueId x = t.in("x", a), y = t.in("y", c);
    t.out(t.b.add(t.b.mul(x, y), t.b.scalar(0.5)));
    check(t.g);
  }
}

TEST(SynthMap, ViewsAreFolded) {
  G t;
  const ValueId x = t.in("x", {6, 8, 10});
  const ValueId p = t.b.permute(x, {1, 0, 2});
  const ValueId s = t.b.slice(x, {1, 0, 3}, G::shape({4, 8, 5}), {1, 1, 1});
  const ValueId u = t.b.slice(x, {0, 1, 0}, G::shape({3, 4, 5}), {2, 2, 2});
  t.out(t.b.add(p, p));
  t.out(t.b.mul(s, s));
  t.out(t.b.mul(u, u));
  t.out(t.b.add(t.b.permute(x, {2, 1, 0}), t.b.scalar(1)));
  t.out(t.b.add(t.b.reshape(x, G::shape({48, 10})), t.in("y", {48, 10})));
  check(t.g);
}

// Threads of a GPU fill their vectors from the axis before a short last one.
TEST(SynthMap, ShortLastAxes) {
  for (const int64_t pairs : {8, 6, 5}) {
    G t;
    const ValueId x = t.in("x", {3, pairs, 2}), turn = t.in("turn", {3, pairs, 1});
    const ValueId y = t.b.permute(t.b.reshape(x, G::shape({3, 2, pairs})), {0, 2, 1});
    t.out(t.b.add(t.b.mul(x, turn), y));
    for (const char* machine : {"sm_90a", "gfx942"}) {
      const auto plans = check(t.g, {.machines = {machine}});
      EXPECT_EQ(any_contains(plans, "x2x2"), pairs % 2 == 0) << machine << " " << pairs;
    }
  }
}
// Vectors of processors go over several rows: numbers of pairs that are read both ways, of each pair, of the position
// in it. What lies too far apart, or does not fill vectors, goes row by row.
TEST(SynthMap, RowsShorterThanAVector) {
  for (const int64_t run : {2, 4}) {
    for (const int64_t runs : {16, 8, 5}) {
      G t;
      const ValueId x = t.in("x", {3, runs, run}), each = t.in("each", {runs, 1}), place = t.in("place", {run});
      const auto one = [&](int64_t i) { return t.b.slice(x, {0, 0, i}, G::shape({3, runs, 1})); };
      const ValueId number = t.b.iota(G::type({1, 1, run}, Scalar::i32), 2);
      const ValueId first = t.b.mul(t.b.mul(one(0), each), place);
      const ValueId last = t.b.mul(one(run - 1), t.b.convert(number, Scalar::f32));
      t.out(t.b.add(first, t.b.add(last, x)));
      const auto plans = check(t.g, {});
      EXPECT_EQ(any_contains(plans, "x8 over short rows"), runs * run % 8 == 0) << run << " " << runs;
      EXPECT_EQ(any_contains(plans, "x16 over short rows"), runs * run % 16 == 0) << run << " " << runs;
    }
  }
  G t;
  const ValueId x = t.in("x", {2, 16}), y = t.b.permute(t.in("y", {2, 16}), {1, 0});
  t.out(t.b.add(t.b.reshape(x, G::shape({16, 2})), y));
  EXPECT_FALSE(any_contains(check(t.g, {}), "over short rows"));
}

TEST(SynthMap, TypesAndChoices) {
  G t;
  const ValueId x = t.in("x", {5, 19}), h = t.in("h", {5, 19}, Scalar::f16), n = t.in("n", {19}, Scalar::i32),
                m = t.in("m", {5, 19}, Scalar::boolean);
  const ValueId i = t.b.iota(G::type({5, 19}, Scalar::i32), 1);
  const ValueId equal = t.b.binary(ScalarOp::eq_, i, n);
  t.out(t.b.select(equal, x, t.b.scalar(0)));
  t.out(t.b.select(m, x, t.b.convert(h, Scalar::f32)));
  t.out(equal);
  t.out(t.b.convert(t.b.add(x, x), Scalar::bf16));
  t.out(t.b.unary(ScalarOp::exp_, x));
  t.out(t.b.mul(t.b.convert(i, Scalar::f32), x));
  check(t.g, {.limits = {{"n", 19}}});
}

TEST(SynthMap, RandomNumbersAreTheOracles) {
  G t;
  const ValueId seed = t.in("seed", {}, Scalar::u32);
  t.out(t.b.add(t.b.random(seed, 7, G::shape({13, 29})), t.in("x", {13, 29})));
  check(t.g, {.tolerance = 0, .limits = {{"seed", 1000000}}});
}

TEST(SynthMap, StatesAreUpdatedInPlace) {
  G t;
  const ValueId m = t.in("m", {9, 31}, Scalar::f32, graph::Role::state),
                w = t.in("w", {9, 31}, Scalar::f32, graph::Role::parameter);
  const ValueId g = t.in("g", {9, 31});
  const ValueId moment = t.b.add(t.b.mul(m, t.b.scalar(0.9)), t.b.mul(g, t.b.scalar(0.1)));
  t.out(t.b.update(m, moment));
  t.out(t.b.update(w, t.b.sub(w, t.b.mul(moment, t.b.scalar(0.01)))));
  check(t.g);
}

TEST(SynthMap, EqualWorkIsEqualText) {
  std::string first;
  for (int k = 0; k < 2; ++k) {
    G t;
    for (int extra = 0; extra < 3 * k; ++extra) t.in("unused" + std::to_string(extra), {2});
    const ValueId x = t.in("x" + std::to_string(k), {64, 64}), y = t.in("y" + std::to_string(k), {64});
    t.out(t.b.add(x, y));
    const graph::Plan plan = graph::fuse(t.g);
    const auto s = synth::synthesize(plan, plan.groups.at(0), *machine::find_machine("x86-64-v3"));
    const std::string text = loop::print(s.steps.at(0).kernel);
    if (k == 0) first = text;
    EXPECT_EQ(text, first);
  }
}

// Lanes of a GPU unpack whole blocks, and pass what they hold on to lanes that write beside each other.
TEST(SynthMap, BlobsAreDecodedBlockByBlock) {
  for (const char* name : {"q4_0", "q6_k", "int3_g128", "int8_row"})
    for (const int64_t rows : {3, 32}) {
      G t;
      const FormatRef f = FormatLibrary::builtin().find(name);
      t.out(t.b.convert(t.decoded(t.in("w", {rows, 512}, f, graph::Role::parameter)), Scalar::bf16));
      const auto plans = check(t.g, {.machines = {"sm_90a", "gfx942"}});
      EXPECT_TRUE(any_contains(plans, "decode")) << name;
    }
}

}  // namespace
}  // namespace lumen::test
