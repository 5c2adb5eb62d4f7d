// Needs: none. Attention groups against the graph evaluator: prefill and decode, causal masks, grouped heads, keys in
// formats, keys found by a table.
#include "tests/kernel/synth/attention/attend_cases.h"

namespace lumen::test {
namespace {

void attention(int64_t batch, int64_t queries, int64_t keys, int64_t groups, int64_t repeat, int64_t depth,
               const FormatRef& format, int64_t window = 0, int64_t limit = 0) {
  const G t = attention_graph({batch, queries, keys, groups, repeat, depth, depth, format, window});
  const std::vector<std::string> plans =
      check(t.g, {.tolerance = 1e-5, .limits = {{"start", limit > 0 ? limit : keys}}, .machines = {"x86-64-v3"}});
  bool attends = false;
  for (const std::string& p_text : plans)
    attends = attends || (p_text.starts_with("attend") && p_text.find("bounded") != std::string::npos);
  EXPECT_TRUE(attends || keys == 1) << "fuse did not find the attention of " << batch << " " << queries << " " << keys;
}

TEST(SynthAttend, PrefillAndDecode) {
  attention(1, 5, 5, 2, 1, 16, nullptr);
  attention(2, 7, 13, 2, 2, 8, nullptr);
  attention(1, 1, 19, 2, 2, 32, nullptr);
  attention(1, 3, 11, 1, 3, 20, nullptr);
  attention(1, 21, 21, 2, 1, 16, nullptr);
  attention(1, 9, 150, 1, 1, 20, nullptr);
  attention(2, 1, 33, 1, 1, 48, nullptr);
  attention(1, 37, 1, 1, 2, 16, nullptr);
}

TEST(SynthAttend, BlocksThatTheMaskHidesAreSkipped) {
  attention(1, 40, 300, 1, 2, 16, nullptr, 0, 5);
  attention(1, 90, 300, 1, 1, 16, nullptr, 30, 5);
  attention(1, 3, 300, 1, 1, 16, nullptr, 20, 290);
  attention(1, 9, 33, 1, 1, 16, nullptr, 4, 60);  // rows whose window lies behind the last key see all of them
}

TEST(SynthAttend, FewHeadsSplitTheirKeys) {
  attention(1, 1, 1100, 2, 2, 16, nullptr, 0, 1100);
  attention(1, 2, 1100, 1, 1, 20, nullptr, 0, 40);
  attention(1, 1, 1040, 1, 1, 32, format_named("q8_0"), 0, 1040);
  attention(1, 1, 2100, 2, 2, 16, nullptr, 0, 5);  // later parts have no keys
  attention(1, 2, 2100, 1, 1, 16, nullptr, 9, 1300);
}

TEST(SynthAttend, KeysInFormats) {
  attention(1, 2, 9, 2, 2, 64, format_named("q8_0"));
  attention(1, 2, 9, 2, 1, 24, format_named("f16"));
}

void by_table(const TableCase& c) {
  const G t = table_graph(c);
  const std::vector<std::string> plans = check(t.g, {.tolerance = 1e-5,
                                                     .limits = {{"table", c.places}, {"positions", c.keys}},
                                                     .machines = {"x86-64-v3", "avx512", "sm_80"}});
  int found = 0;
  for (const std::string& plan : plans) {
    found += plan.find("by table bounded") != std::string::npos ? 1 : 0;
    EXPECT_FALSE(plan.starts_with("gather")) << plan;
  }
  EXPECT_EQ(found, 3) << graph::print(t.g);
  // Blocks of lanes multiply rounded factors.
  Check rounded{.tolerance = 2e-2, .limits = {{"table", c.places}, {"positions", c.keys}}};
  rounded.machines = {"sm_90a", "gfx942"};
  rounded.options.products = Scalar::bf16;
  for (const std::string& plan : check(t.g, rounded))
    EXPECT_TRUE(plan.starts_with("attend merge") || plan.find("by table bounded by blocks") != std::string::npos)
        << plan;
}

TEST(SynthAttend, KeysFoundByATable) {
  by_table({.texts = 3, .queries = 1, .keys = 24, .groups = 2});
  by_table({.texts = 2, .queries = 5, .keys = 21, .groups = 2, .repeat = 3});
  by_table({.texts = 1, .queries = 20, .keys = 150, .places = 170, .depth = 20});
  by_table({.texts = 2, .queries = 9, .keys = 70, .places = 80, .window = 8});
  by_table({.texts = 4, .queries = 1, .keys = 40, .repeat = 2, .depth = 32, .window = 8, .same = true});
}

TEST(SynthAttend, KeysFoundByATableInFormats) {
  for (const char* name : {"q8_0", "q4_0", "f16"}) {
    by_table({.texts = 2, .queries = 1, .keys = 24, .groups = 2, .depth = 64, .format = format_named(name)});
    by_table({.texts = 2, .queries = 7, .keys = 40, .repeat = 2, .depth = 32, .format = format_named(name)});
  }
  by_table({.texts = 2, .queries = 2, .keys = 9, .groups = 2, .depth = 24, .format = format_named("f16")});
}

TEST(SynthAttend, LongTextsFoundByATableSplitTheirKeys) {
  by_table({.texts = 1, .queries = 1, .keys = 1100, .places = 1200});
  by_table({.texts = 2, .queries = 2, .keys = 1040, .places = 60, .depth = 32, .format = format_named("q8_0")});
}

TEST(SynthAttend, ATablesNumbersAreGuarded) {
  G t;
  const graph::ValueId q = t.in("q", {1, 3, 16}), table = t.in("table", {1, 24}, Scalar::i32);
  const graph::ValueId k = t.b.gather(t.in("k", {40, 16}), table), v = t.b.gather(t.in("v", {40, 16}), table);
  const graph::ValueId s = t.b.contract(q, k, "btd", "bsd", "bts");
  const graph::ValueId e = t.b.unary(ScalarOp::exp_, t.b.sub(s, t.b.reduce(s, graph::Reduction::max, {2})));
  t.out(t.b.contract(t.b.div(e, t.b.reduce(e, graph::Reduction::sum, {2})), v, "bts", "bse", "bte"));
  auto inputs = random_inputs(t.g, {.limits = {{"table", 40}}});
  inputs["table"].values[7] = 40;
  const auto m = machine::find_machine("x86-64-v3");
  const PlanRun run = run_plan(graph::fuse(t.g), inputs, *m, loop_evaluator(*m));
  EXPECT_EQ(run.status.code, loop::kGuardIndex);
  EXPECT_EQ(run.status.detail, 40);
  EXPECT_TRUE(run.plans.size() == 1 && run.plans[0].find("by table") != std::string::npos);
}

void gradient(int64_t batch, int64_t length, int64_t groups, int64_t repeat, int64_t depth, int64_t width) {
  const G t = gradient_graph(batch, length, groups, repeat, depth, width);
  int kernels = 0;
  std::string all;
  for (const std::string& plan : check(t.g, {.tolerance = 1e-5})) {
    all += plan + "\n";
    kernels += plan.starts_with("attend gradient") && plan.find("bounded") != std::string::npos ? 1 : 0;
    EXPECT_FALSE(plan.starts_with("dot")) << plan;
  }
  EXPECT_EQ(kernels, 2) << all << graph::print(t.g);  // one for each machine
}

TEST(SynthAttend, GradientInOneKernel) {
  gradient(1, 9, 2, 1, 16, 16);
  gradient(2, 37, 1, 2, 20, 24);
  gradient(1, 70, 2, 3, 8, 40);
  gradient(1, 130, 1, 1, 32, 32);
}

// Tiles of a matrix unit: ragged rows and keys, windows, a bias, heads that share keys, keys in formats, found by a
// table, or in parts; one query alone takes vectors.
TEST(SynthAttend, OnMatrixUnits) {
  const auto on_units = [](const AttentionCase& c, bool has_units = true) {
    const G t = attention_graph(c);
    Check how{.tolerance = block_tolerance(Scalar::bf16, false), .limits = {{"start", c.keys}}, .machines = {"amx"}};
    how.options.exact = false;
    how.options.products = Scalar::bf16;
    const std::vector<std::string> plans = check(t.g, how);
    EXPECT_EQ(any_contains(plans, "tile.bf16bf16.f32"), has_units) << plans[0];
  };
  on_units({.batch = 2, .queries = 40, .keys = 40, .groups = 2, .repeat = 2, .depth = 32, .width = 32});
  on_units({.queries = 70, .keys = 150, .depth = 48, .width = 16, .window = 50});
  on_units({.queries = 17, .keys = 19, .groups = 1, .repeat = 3, .depth = 7, .width = 9, .bias = true});
  on_units({.queries = 9, .keys = 300, .depth = 64, .width = 64, .format = format_named("q8_0")});
  on_units({.queries = 8, .keys = 1100, .depth = 16, .width = 16});
  on_units({.queries = 1, .keys = 60, .groups = 2}, false);
  const G t = table_graph({.texts = 2, .queries = 9, .keys = 70, .places = 80, .window = 8});
  Check how{.tolerance = 2e-2, .limits = {{"table", 80}, {"positions", 70}}, .machines = {"amx"}};
  how.options.exact = false;
  how.options.products = Scalar::bf16;
  EXPECT_TRUE(any_contains(check(t.g, how), "tile.bf16bf16.f32"));
}

// Tiles of a matrix unit, whose factors are rounded: ragged rows and keys, heads that share keys, widths that are no
// whole steps; with exact numbers the same machine takes vectors.
TEST(SynthAttend, GradientOnMatrixUnits) {
  const auto on_units = [](const std::array<int64_t, 6>& c, bool exact) {
    const G t = gradient_graph(c[0], c[1], c[2], c[3], c[4], c[5]);
    Check how{.tolerance = exact ? 1e-5 : block_tolerance(Scalar::bf16, true), .machines = {"amx"}};
    how.options = {.exact = exact, .products = Scalar::bf16};
    std::string all;
    for (const std::string& plan : check(t.g, how)) all += plan + "\n";
    EXPECT_EQ(all.find("tile.bf16bf16.f32") != std::string::npos, !exact) << all;
  };
  on_units({1, 130, 1, 1, 32, 16}, false);
  on_units({1, 67, 1, 1, 80, 48}, false);
  on_units({2, 37, 1, 2, 20, 24}, false);
  on_units({1, 9, 2, 1, 10, 6}, false);
  on_units({1, 70, 2, 3, 8, 40}, true);
}

}  // namespace
}  // namespace lumen::test
