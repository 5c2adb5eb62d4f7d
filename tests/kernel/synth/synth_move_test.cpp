// Needs: none. Moves against the graph evaluator: gather, scatter_add, concat, pad, copies of views, updates with
// starts, casts, and refused indices.
#include "graph/group/access.h"
#include "tests/kernel/synth/synth_harness.h"

namespace lumen::test {
namespace {

using graph::ValueId;

TEST(SynthMove, Gather) {
  for (const auto& [table, index] :
       std::vector<std::pair<std::vector<int64_t>, std::vector<int64_t>>>{{{11, 16}, {5}},
                                                                          {{11, 37}, {2, 3}},
                                                                          {{11, 3, 20}, {4}},
                                                                          {{11}, {9}},
                                                                          {{11}, {2, 5}},
                                                                          {{1, 8}, {3}},
                                                                          {{11, 1}, {3}}}) {
    G t;
    t.out(t.b.gather(t.in("table", table), t.in("index", index, Scalar::i32)));
    check(t.g, {.tolerance = 0, .limits = {{"index", table[0]}}});
  }
}

TEST(SynthMove, GatherFromFormats) {
  for (const char* name : {"q4_0", "q6_k", "f16", "q8_0", "fp8_e4m3_row", "mxfp4"}) {
    const FormatRef f = FormatLibrary::builtin().find(name);
    if (!f) continue;
    G t;
    const ValueId table = t.in("table", {7, f->block * (f->block < 64 ? 96 / f->block : 1)}, f);
    t.out(t.b.gather(t.decoded(table), t.in("index", {2, 3}, Scalar::i32)));
    check(t.g, {.tolerance = 0, .limits = {{"index", 7}}});
  }
}

TEST(SynthMove, IndexOutsideIsGuarded) {
  G t;
  t.out(t.b.gather(t.in("table", {4, 8}), t.in("index", {3}, Scalar::i32)));
  const graph::Plan plan = graph::fuse(t.g);
  auto inputs = random_inputs(t.g, {.limits = {{"index", 4}}});
  inputs["index"].values = {1, 4, 2};
  const auto m = machine::find_machine("x86-64-v3");
  const PlanRun run = run_plan(plan, inputs, *m, loop_evaluator(*m));
  EXPECT_EQ(run.status.code, loop::kGuardIndex);
  EXPECT_EQ(run.status.detail, 4);
}

TEST(SynthMove, ScatterAdd) {
  for (const auto& [value, lead] : std::vector<std::pair<std::vector<int64_t>, size_t>>{
           {{5, 16}, 1}, {{2, 9, 37}, 2}, {{40}, 1}, {{3, 2, 3, 20}, 2}}) {
    G t;
    const ValueId v = t.in("value", value),
                  i = t.in("index", {value.begin(), value.begin() + static_cast<int64_t>(lead)}, Scalar::i32);
    t.out(t.b.scatter_add(v, i, graph::Dim(6)));
    check(t.g, {.limits = {{"index", 6}}});
  }
}

TEST(SynthMove, ConcatAndPad) {
  G t;
  const ValueId x = t.in("x", {3, 4, 10}), y = t.in("y", {3, 2, 10}), z = t.in("z", {3, 4, 7});
  t.out(t.b.concat({x, y}, 1));
  t.out(t.b.concat({x, z, x}, 2));
  t.out(t.b.concat({x, x}, 0));
  t.out(t.b.pad(x, G::shape({3, 9, 12}), {0, 2, 1}, {1, 1, 1}));
  t.out(t.b.pad(x, G::shape({3, 8, 21}), {0, 1, 0}, {1, 2, 2}));
  t.out(t.b.concat({t.b.slice(x, {0, 0, 5}, G::shape({3, 4, 5})), t.b.slice(x, {0, 0, 0}, G::shape({3, 4, 5}))}, 2));
  check(t.g, {.tolerance = 0});
}

// One kernel writes every number of a pad once: zeros around and between, rows of whole vectors and odd ones, of views.
TEST(SynthMove, PadInOnePass) {
  const std::vector<std::string> machines = {"x86-64-v3", "avx512", "sm_90a", "gfx942"};
  for (const Scalar s : {Scalar::bf16, Scalar::f32, Scalar::boolean, Scalar::i8}) {
    G t;
    const ValueId x = t.in("x", {2, 4, 5, 16}, s), y = t.in("y", {3, 4, 7}, s), z = t.in("z", {9}, s);
    t.out(t.b.pad(x, G::shape({2, 6, 7, 16}), {0, 1, 1, 0}, {1, 1, 1, 1}));
    t.out(t.b.pad(x, G::shape({2, 9, 11, 16}), {0, 1, 2, 0}, {1, 2, 2, 1}));
    t.out(t.b.pad(x, G::shape({3, 4, 5, 24}), {1, 0, 0, 8}, {1, 1, 1, 1}));
    t.out(t.b.pad(y, G::shape({3, 6, 9}), {0, 1, 1}, {1, 1, 1}));
    t.out(t.b.pad(y, G::shape({3, 4, 22}), {0, 0, 1}, {1, 1, 3}));
    t.out(t.b.pad(y, G::shape({8, 4, 7}), {2, 0, 0}, {2, 1, 1}));
    t.out(t.b.pad(z, G::shape({40}), {3}, {4}));
    t.out(t.b.pad(t.b.permute(y, {1, 0, 2}), G::shape({6, 3, 7}), {1, 0, 0}, {1, 1, 1}));
    t.out(t.b.pad(t.b.permute(y, {2, 1, 0}), G::shape({7, 5, 4}), {0, 1, 1}, {1, 1, 1}));
    t.out(t.b.pad(t.in("one", {4, 1}, s), G::shape({4, 3}), {0, 1}, {1, 1}));
    check(t.g, {.tolerance = 0, .machines = machines});
  }
  G t;
  t.out(t.b.pad(t.in("x", {2, 4, 5, 16}, Scalar::bf16), G::shape({2, 6, 7, 16}), {0, 1, 1, 0}, {1, 1, 1, 1}));
  const graph::Plan plan = graph::fuse(t.g);
  for (const std::string& name : machines) {
    const synth::Synthesis made = synth::synthesize(plan, plan.groups[0], *machine::find_machine(name), {});
    ASSERT_EQ(made.steps.size(), 1) << name;
    EXPECT_EQ(made.steps[0].plan, "pad 2x4x5x16 into 2x6x7x16");
  }
}

TEST(SynthMove, ViewsAreCopied) {
  G t;
  const ValueId x = t.in("x", {6, 17, 20});
  t.out(t.b.permute(x, {2, 0, 1}));
  t.out(t.b.permute(x, {0, 2, 1}));
  t.out(t.b.permute(x, {1, 0, 2}));
  t.out(t.b.slice(x, {1, 2, 3}, G::shape({2, 5, 16})));
  t.out(t.b.broadcast(t.in("y", {1, 5}), G::shape({4, 5})));
  t.out(t.b.iota(G::type({3, 5}), 1));
  t.out(t.b.permute(t.in("z", {37, 50}), {1, 0}));
  t.out(t.b.permute(t.in("u", {3, 32, 2, 16}), {0, 3, 2, 1}));
  check(t.g, {.tolerance = 0});
}

TEST(SynthMove, UpdateWithStarts) {
  G t;
  const ValueId cache = t.in("cache", {2, 9, 20}, Scalar::f32, graph::Role::state);
  const ValueId start = t.in("start", {}, Scalar::i32), zero = t.b.scalar(0, Scalar::i32);
  t.out(t.b.update(cache, t.in("x", {2, 3, 20}), {zero, start, zero}));
  check(t.g, {.tolerance = 0, .limits = {{"start", 7}}});
}

// Parts with places of their own; those with a negative start are left out.
void check_many_starts(const std::vector<int64_t>& state, const std::vector<int64_t>& parts,
                       const std::vector<int64_t>& window, size_t axis, FormatRef format = nullptr) {
  G t;
  const ValueId cache =
      format ? t.in("cache", state, format, graph::Role::state) : t.in("cache", state, Scalar::f32, graph::Role::state);
  std::vector<int64_t> shape = parts;
  shape.insert(shape.end(), window.begin(), window.end());
  ValueId x = t.in("x", shape);
  if (format) x = t.b.cast(x, {Scalar::f32, format});
  std::vector<ValueId> starts(state.size(), t.b.scalar(0, Scalar::i32));
  starts[axis] = t.in("start", parts, Scalar::i32);
  t.out(t.b.update(cache, x, starts));
  std::vector<double> at;
  for (int64_t i = 0; i < synth::product(parts); ++i)
    at.push_back(i % 3 == 1 ? -1.0 : static_cast<double>((i * 5 + 2) % state[axis]));
  check(t.g, {.tolerance = 0, .given = {{"start", at}}});
}

TEST(SynthMove, UpdateWithManyStarts) {
  check_many_starts({2, 11, 20}, {5}, {2, 1, 20}, 1);
  check_many_starts({2, 11, 20}, {2, 3}, {1, 1, 7}, 1);
  check_many_starts({11}, {2, 4}, {1}, 0);
  check_many_starts({11, 3}, {1}, {1, 3}, 0);
  check_many_starts({2, 11, 64}, {2, 3}, {2, 1, 64}, 1, format_named("q8_0"));
  check_many_starts({11, 64}, {4}, {1, 64}, 0, format_named("q4_0"));
}

TEST(SynthMove, UpdateOutsideIsGuarded) {
  G t;
  const ValueId cache = t.in("cache", {4, 8}, Scalar::f32, graph::Role::state);
  t.out(t.b.update(cache, t.in("x", {3, 1, 8}), {t.in("start", {3}, Scalar::i32), t.b.scalar(0, Scalar::i32)}));
  auto inputs = random_inputs(t.g, {});
  inputs["start"].values = {1, -1, 4};
  const auto m = machine::find_machine("x86-64-v3");
  const PlanRun run = run_plan(graph::fuse(t.g), inputs, *m, loop_evaluator(*m));
  EXPECT_EQ(run.status.code, loop::kGuardUpdate);
  EXPECT_EQ(run.status.detail, 4);
  EXPECT_THROW((void)graph::eval(t.g, inputs), Error);
}

TEST(SynthMove, CastsIntoFormatsAndBack) {
  for (const char* name : {"q4_0", "q8_0", "f16", "bf16", "mxfp4"}) {
    const FormatRef f = format_named(name);
    G t;
    const ValueId x = t.in("x", {2, 3, f->block * 4});
    t.out(t.b.cast(x, {Scalar::f32, f}));
    const ValueId fake = t.decoded(t.b.cast(t.b.add(x, x), {Scalar::f32, f}));
    t.out(t.b.mul(fake, x));
    t.out(t.decoded(t.b.cast(t.b.permute(x, {1, 0, 2}), {Scalar::f32, f})));
    check(t.g, {.tolerance = 0});
  }
}

TEST(SynthMove, StatesInFormats) {
  const FormatRef f = format_named("q8_0");
  G t;
  const ValueId m = t.in("m", {4, 64}, f, graph::Role::state), x = t.in("x", {4, 64});
  const ValueId next = t.b.add(t.b.mul(t.decoded(m), t.b.scalar(0.9)), x);
  t.out(t.b.update(m, t.b.cast(next, {Scalar::f32, f})));
  check(t.g, {.tolerance = 0});
  G u;
  const ValueId cache = u.in("cache", {3, 9, 64}, f, graph::Role::state), y = u.in("y", {3, 2, 64});
  const ValueId start = u.in("start", {}, Scalar::i32), zero = u.b.scalar(0, Scalar::i32);
  u.out(u.b.update(cache, u.b.cast(y, {Scalar::f32, f}), {zero, start, zero}));
  check(u.g, {.tolerance = 0, .limits = {{"start", 8}}});
}

}  // namespace
}  // namespace lumen::test
