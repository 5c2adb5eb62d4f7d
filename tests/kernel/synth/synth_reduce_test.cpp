// Needs: none. Reduce groups against the graph evaluator: any axes, several reduces, softmax, norms, losses, norms over
// everything.
#include "tests/kernel/synth/synth_harness.h"

namespace lumen::test {
namespace {

using graph::Reduction;
using graph::ValueId;

TEST(SynthReduce, EveryAxis) {
  const std::vector<std::pair<std::vector<int64_t>, std::vector<int>>> cases = {
      {{7}, {0}},           {{1}, {0}},           {{5, 33}, {1}},       {{5, 33}, {0}},          {{4, 6, 19}, {1}},
      {{4, 6, 19}, {0, 2}}, {{4, 6, 19}, {0, 1}}, {{4, 6, 19}, {1, 2}}, {{4, 6, 19}, {0, 1, 2}}, {{3, 1, 40}, {1}},
      {{37, 64}, {0}},      {{3, 5, 70}, {0}}};
  for (const Reduction r : {Reduction::sum, Reduction::max, Reduction::min})
    for (const auto& [shape, axes] : cases) {
      G t;
      const ValueId x = t.in("x", shape);
      t.out(t.b.reduce(t.b.mul(x, x), r, axes));
      check(t.g);
    }
}

TEST(SynthReduce, BigOnesAreCutInParts) {
  G t;
  const ValueId x = t.in("x", {300, 307});
  t.out(t.b.unary(ScalarOp::sqrt_, t.b.reduce(t.b.mul(x, x), Reduction::sum, {0, 1})));
  EXPECT_TRUE(any_contains(check(t.g, {.machines = {"x86-64-v3"}}), "splits"));
  G u;
  const ValueId y = u.in("y", {2048, 37}), w = u.in("w", {37});
  u.out(u.b.mul(u.b.reduce(u.b.mul(y, w), Reduction::sum, {0}), u.b.scalar(0.5)));
  EXPECT_TRUE(any_contains(check(u.g, {.tolerance = 1e-4, .machines = {"x86-64-v3"}}), "splits"));
}

// Extremes and sums of tiles: lanes of a wave share every line of a tile, some lines at once, and parts of tiles have
// whole runs of lines. Columns ask for some rows at once, and for what is left one by one.
TEST(SynthReduce, TilesAndColumnsOfLanes) {
  for (const Reduction r : {Reduction::max, Reduction::sum})
    for (const auto& [shape, plan] : std::vector<std::pair<std::vector<int64_t>, std::string>>{
             {{2, 37, 3, 256}, "by waves"}, {{4, 272, 2, 256}, "splits"}}) {
      G t;
      const ValueId x = t.b.convert(t.in("x", shape, Scalar::bf16), Scalar::f32);
      t.out(t.b.unary(ScalarOp::neg_, t.b.reduce(t.b.unary(ScalarOp::abs_, x), r, {1, 3})));
      const Check how{.tolerance = r == Reduction::max ? 0 : 1e-4, .machines = {"sm_90a", "gfx942"}};
      for (const std::string& p : check(t.g, how))
        if (p.find("reduce rows") == 0) {
          EXPECT_TRUE(p.find("by waves") != std::string::npos && p.find(plan) != std::string::npos) << p;
        }
    }
  for (const int64_t rows : {7, 299, 2053}) {
    G t;
    const ValueId x = t.b.convert(t.in("x", {rows, 72}, Scalar::bf16), Scalar::f32);
    t.out(t.b.reduce(t.b.unary(ScalarOp::abs_, x), Reduction::max, {0}));
    EXPECT_TRUE(any_contains(check(t.g, {.tolerance = 0, .machines = {"sm_90a", "gfx942"}}), "reduce columns"));
  }
}

// Of what a format holds: a part is whole blocks, and lanes share it.
TEST(SynthReduce, PartsOfPackedValues) {
  for (const char* format : {"q4_0", "q4_k", "bf16", "nvfp4"}) {
    G t;
    const FormatRef f = format_named(format);
    const ValueId w = t.decoded(t.in("w", {160, 1280}, f, graph::Role::parameter));
    t.out(t.b.reduce(t.b.unary(ScalarOp::abs_, w), Reduction::max, {0, 1}));
    EXPECT_TRUE(any_contains(check(t.g, {.tolerance = 0, .machines = {"x86-64-v3", "sm_90a", "gfx942"}}), "splits"))
        << format;
  }
}

ValueId softmax(G& t, ValueId x) {
  const int axis = static_cast<int>(t.b.type(x).shape.size()) - 1;
  const ValueId e = t.b.unary(ScalarOp::exp_, t.b.sub(x, t.b.reduce(x, Reduction::max, {axis})));
  return t.b.div(e, t.b.reduce(e, Reduction::sum, {axis}));
}

TEST(SynthReduce, Softmax) {
  for (const auto& shape : std::vector<std::vector<int64_t>>{{1, 1}, {3, 7}, {2, 5, 64}, {4, 131}, {1, 20000}}) {
    G t;
    t.out(softmax(t, t.in("x", shape)));
    check(t.g, {.tolerance = 1e-5});
  }
}

// Lanes of a wave share a row: rows that divide among them and rows that do not, waves of 32 and of 64, a softmax
// (two reduces after each other, values of both), a norm read from a 16-bit float.
G norm_and_gradient(int64_t length) {
  G t;
  const ValueId x = t.in("x", {6, 5, length}), w = t.in("w", {length}), dy = t.in("dy", {6, 5, length});
  const double share = 1.0 / static_cast<double>(length);
  const ValueId mean = t.b.mul(t.b.reduce(t.b.mul(x, x), Reduction::sum, {2}), t.b.scalar(share));
  const ValueId inverse = t.b.div(t.b.scalar(1), t.b.unary(ScalarOp::sqrt_, t.b.add(mean, t.b.scalar(1e-5))));
  const ValueId normed = t.b.mul(x, inverse);
  t.out(t.b.mul(normed, w));
  t.out(t.b.reduce(t.b.mul(dy, normed), Reduction::sum, {0, 1}));
  const ValueId dot = t.b.reduce(t.b.mul(t.b.mul(dy, w), normed), Reduction::sum, {2});
  t.out(t.b.mul(t.b.sub(t.b.mul(dy, w), t.b.mul(normed, t.b.mul(dot, t.b.scalar(share)))), inverse));
  return t;
}
TEST(SynthReduce, WavesShareRows) {
  for (const int64_t length : {1024, 1030, 2049}) {
    G t;
    const ValueId x = t.in("x", {3, length});
    t.out(softmax(t, x));
    t.out(t.b.reduce(x, Reduction::max, {1}));
    for (const char* machine : {"sm_90a", "gfx942"})
      EXPECT_TRUE(any_contains(check(t.g, {.tolerance = 1e-5, .machines = {machine}}), "waves of")) << machine;
  }
}

// Few rows, a reduction of them all, and rows that are longer than a wave holds: waves of a block share each.
TEST(SynthReduce, WavesOfABlockShareARow) {
  for (const char* machine : {"sm_90a", "gfx942"}) {
    const Check options{.tolerance = 1e-4, .machines = {machine}};
    for (const int64_t length : {4096, 5000}) {
      G t;
      const ValueId x = t.in("x", {3, length});
      t.out(softmax(t, x));
      t.out(t.b.reduce(x, Reduction::max, {1}));
      const std::string waves = machine == std::string("sm_90a") ? "by 32 waves of 32" : "by 16 waves of 64";
      EXPECT_TRUE(any_contains(check(t.g, options), waves)) << machine;
    }
    G all;
    const ValueId x = all.in("x", {3000, 20});
    all.out(all.b.unary(ScalarOp::sqrt_, all.b.reduce(all.b.mul(x, x), Reduction::sum, {0, 1})));
    EXPECT_FALSE(any_contains(check(all.g, options), "splits")) << machine;
    EXPECT_TRUE(any_contains(check(norm_and_gradient(4096).g, options), "waves of")) << machine;
  }
}

// Short rows: a block takes several, a wave each, or some lanes of one.
TEST(SynthReduce, RowsBesideEachOther) {
  const auto plan_of = [](int64_t rows, int64_t length, const char* machine, const std::string& plan) {
    G t;
    const ValueId x = t.in("x", {4, rows, length});
    t.out(t.b.reduce(t.b.unary(ScalarOp::abs_, x), Reduction::max, {2}));
    t.out(softmax(t, x));
    EXPECT_TRUE(any_contains(check(t.g, {.tolerance = 1e-5, .machines = {machine}}), plan)) << machine;
  };
  G t;
  const ValueId x = t.in("x", {4, 40, 512});
  t.out(t.b.reduce(t.b.unary(ScalarOp::abs_, x), Reduction::max, {2}));
  EXPECT_TRUE(any_contains(check(t.g, {.machines = {"sm_90a"}}), "4 rows by waves of 32"));
  plan_of(16, 64, "sm_90a", "16 rows by lanes of 8");
  plan_of(8, 128, "sm_90a", "8 rows by lanes of 16");
  plan_of(16, 64, "gfx942", "32 rows by lanes of 8");
  plan_of(16, 192, "gfx1100", "16 rows by lanes of 8");
}

TEST(SynthReduce, NormAndItsGradientLikeShapes) {
  check(norm_and_gradient(48).g);
}
// What later passes need of a row stays with the lanes where it is short enough.
TEST(SynthReduce, RowsHeldByLanes) {
  for (const char* machine : {"sm_90a", "gfx942"}) {
    EXPECT_TRUE(
        any_contains(check(norm_and_gradient(2048).g, {.tolerance = 1e-4, .machines = {machine}}), "in registers"));
    EXPECT_FALSE(
        any_contains(check(norm_and_gradient(2050).g, {.tolerance = 1e-4, .machines = {machine}}), "in registers"));
  }
}

TEST(SynthReduce, CrossEntropy) {
  G t;
  const ValueId x = t.in("x", {12, 65}), target = t.in("target", {12, 1}, Scalar::i32);
  const ValueId top = t.b.reduce(x, Reduction::max, {1});
  const ValueId e = t.b.unary(ScalarOp::exp_, t.b.sub(x, top));
  const ValueId sum = t.b.reduce(e, Reduction::sum, {1});
  const ValueId is_target = t.b.binary(ScalarOp::eq_, t.b.iota(G::type({12, 65}, Scalar::i32), 1), target);
  const ValueId picked = t.b.reduce(t.b.select(is_target, x, t.b.scalar(0)), Reduction::sum, {1});
  const ValueId loss = t.b.sub(t.b.add(t.b.unary(ScalarOp::log_, sum), top), picked);
  t.out(t.b.reduce(loss, Reduction::sum, {0, 1}));
  t.out(t.b.sub(t.b.div(e, sum), t.b.select(is_target, t.b.scalar(1), t.b.scalar(0))));
  check(t.g, {.limits = {{"target", 65}}});
}

// 16-bit floats that a row's largest magnitude is found of: computed with the machine's own functions, as in a map, and
// the largest is one of what was written.
TEST(SynthReduce, ExtremesOfShortResults) {
  for (const Scalar type : {Scalar::bf16, Scalar::f32}) {
    G t;
    const ValueId x = t.in("x", {10, 1024}, Scalar::bf16), wide = t.b.convert(x, Scalar::f32);
    const ValueId swish =
        t.b.div(wide, t.b.add(t.b.unary(ScalarOp::exp_, t.b.unary(ScalarOp::neg_, wide)), t.b.scalar(1)));
    const ValueId y = t.b.convert(swish, type);
    t.out(y);
    t.out(t.b.reduce(t.b.unary(ScalarOp::abs_, t.b.convert(y, Scalar::f32)), Reduction::max, {1}));
    const graph::Plan plan = graph::fuse(t.g);
    EXPECT_EQ(plan.groups.size(), 1U);
    const auto inputs = random_inputs(t.g, {});
    const std::vector<graph::Tensor> want = graph::eval(t.g, inputs);
    for (const char* name : {"avx512", "sm_90a", "gfx942"}) {
      const machine::MachineRef m = machine::find_machine(name);
      const PlanRun got = run_plan(plan, inputs, *m, loop_evaluator(*m));
      expect_equal(got.results[0], want[0], type == Scalar::bf16 ? 8e-3 : 2e-6, name);
      for (size_t row = 0; row < 10; ++row) {
        double most = 0;
        for (size_t i = 0; i < 1024; ++i) most = std::max(most, std::abs(got.results[0].values[row * 1024 + i]));
        EXPECT_EQ(got.results[1].values[row], most) << name;
      }
      const bool fast = print(synth::synthesize(plan, plan.groups[0], *m).steps[0].kernel).find("inst f32 power2") !=
                        std::string::npos;
      EXPECT_EQ(fast, type == Scalar::bf16 && !m->power2.empty()) << name;
    }
  }
}

TEST(SynthReduce, ViewsAndHalfPrecision) {
  G t;
  const ValueId x = t.in("x", {6, 8, 20}), h = t.in("h", {9, 50}, Scalar::f16);
  t.out(t.b.reduce(t.b.mul(t.b.permute(x, {1, 0, 2}), t.b.scalar(2)), Reduction::sum, {1, 2}));
  t.out(t.b.reduce(t.b.permute(x, {2, 0, 1}), Reduction::max, {2}));
  t.out(t.b.reduce(t.b.convert(h, Scalar::f32), Reduction::sum, {1}));
  t.out(t.b.reduce(t.b.slice(x, {0, 2, 1}, G::shape({6, 3, 17})), Reduction::sum, {0}));
  check(t.g);
}

}  // namespace
}  // namespace lumen::test
