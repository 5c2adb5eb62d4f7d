// needs: none. Products whose rows pick matrices: few rows and many, evenly spread and all of one matrix, every road a
// weight can take.
#include <gtest/gtest.h>

#include "tests/kernel/synth/picked_cases.h"

namespace lumen::test {
namespace {

bool any(const std::vector<std::string>& plans, std::string_view what) {
  return std::any_of(plans.begin(), plans.end(),
                     [&](const std::string& p) { return p.find(what) != std::string::npos; });
}

TEST(DotGroup, FewRowsAreProductsOfTheirOwn) {
  const auto plans = check_experts({.rows = 1, .picked = 2, .experts = 8}, {});
  EXPECT_TRUE(any(plans, "2 rows by 8 picked"));
  EXPECT_FALSE(any(plans, "in blocks"));
}

TEST(DotGroup, ManyRowsAreSorted) {
  for (const int64_t rows : {5, 17, 63}) {
    SCOPED_TRACE(rows);
    const auto plans = check_experts({.rows = rows}, {.seed = static_cast<uint32_t>(rows)});
    EXPECT_TRUE(any(plans, "in blocks"));
    EXPECT_TRUE(any(plans, "summed"));
  }
}

TEST(DotGroup, AllRowsOfOneMatrixAndMatricesWithoutRows) {
  for (const int64_t limit : {1, 2})
    check_experts({.rows = 41, .picked = 3, .experts = 5}, {.limits = {{"picks", limit}}});
}

TEST(DotGroup, SortsOfManyTasks) {
  const auto plans = check_experts({.rows = 700, .picked = 2, .experts = 11, .wide = 5, .deep = 7}, {});
  EXPECT_TRUE(any(plans, "count 1400 rows by 11"));
}

TEST(DotGroup, WeightsInFormats) {
  for (const char* name : {"q4_0", "nf4", "fp8_tile"}) {
    SCOPED_TRACE(name);
    const FormatRef f = format_named(name);
    for (const int64_t rows : {1, 4, 11}) {
      const int64_t deep = std::max<int64_t>(f->block, 64);
      const Experts e{.rows = rows, .experts = 2, .wide = std::max<int64_t>(f->block, 24), .deep = deep, .format = f};
      Check rounded{.tolerance = 0.4, .limits = {{"picks", 2}}, .options = {}};  // activations have eight bits
      if (rows > 4) rounded.machines.push_back("amx");
      check(second_of_experts(e).g, rounded);
      if (rows > 4) check_experts(e, {.tolerance = 1e-4, .machines = {"avx512"}});
    }
  }
}

// Blocks of few rows, whose first may be any of those that a step before has rounded.
TEST(DotGroup, BlocksBesideSkinnyDots) {
  for (const int64_t rows : {52, 80}) {
    const Experts e{.rows = rows, .experts = 5, .wide = 32, .deep = 128, .format = format_named("q4_0")};
    const auto plans =
        check(second_of_experts(e).g,
              {.tolerance = 0.03, .limits = {{"picks", 5}}, .machines = {"sm_90a", "gfx942"}, .options = {}});
    EXPECT_TRUE(any(plans, "round ")) << rows;
    EXPECT_TRUE(any(plans, " skinny ")) << rows;
  }
}

TEST(DotGroup, SixteenBitFloats) {
  check_experts({.rows = 37, .scalar = Scalar::bf16},
                {.tolerance = 2e-2, .machines = {"amx", "avx512-bf16", "x86-64-v3"}});
}

// Two rows that are multiplied together are those of one matrix.
TEST(DotGroup, PairsOfRowsOfOneMatrix) {
  const Experts e{.rows = 37, .wide = 32, .deep = 64, .format = format_named("fp8_e4m3")};
  Check c{.tolerance = 0.1, .limits = {{"picks", 4}}, .machines = {"neon-bf16"}, .options = {}};  // rounded operands
  EXPECT_TRUE(any(check(second_of_experts(e).g, c), "square"));
}

// Rows that pick nothing are zeros, then whatever follows; nothing is multiplied for them.
TEST(DotGroup, RowsThatPickNothing) {
  for (const bool none : {false, true})
    for (const int64_t rows : {1, 2, 4, 37}) {
      SCOPED_TRACE(rows);
      const Experts e{.rows = rows, .experts = 5};
      const auto plans = check_experts(e, {.given = {{"picks", some_picks(e, none)}}});
      EXPECT_TRUE(any(plans, "zeros of"));
    }
}

TEST(DotGroup, RowsThatPickNothingOfWeightsInFormats) {
  for (const char* name : {"q4_0", "q6_k"}) {
    SCOPED_TRACE(name);
    const FormatRef f = format_named(name);
    for (const int64_t rows : {1, 3, 20}) {
      const int64_t deep = std::max<int64_t>(f->block, 128);
      const Experts e{.rows = rows, .experts = 3, .wide = 32, .deep = deep, .format = f};
      Check c{.tolerance = 1e-4, .machines = {"avx512", "x86-64-v3", "sm_90a", "gfx942"}};
      c.given = {{"picks", some_picks(e)}};
      check(first_of_experts(e).g, c);
      check(second_of_experts(e).g, c);
      c.tolerance = 0.4;
      c.options = {};  // activations have eight bits
      c.machines.push_back("amx");
      check(second_of_experts(e).g, c);
    }
  }
}

// The same where rows stay unsorted, however many there are (Options::invariant): they are zeros, too.
TEST(DotGroup, RowsThatPickNothingAndStayUnsorted) {
  const Experts e{.rows = 37, .experts = 3, .wide = 32, .deep = 128, .format = format_named("q4_0")};
  Check c{.tolerance = 0.4, .machines = {"avx512", "x86-64-v3"}, .options = {}};  // activations have eight bits
  c.options.invariant = true;
  c.given = {{"picks", some_picks(e)}};
  const auto plans = check(second_of_experts(e).g, c);
  EXPECT_TRUE(any(plans, "zeros of"));
  EXPECT_FALSE(any(plans, "in blocks"));
}

// Integers that are seen not to be negative cost nothing: what mixtures pick by argmax.
TEST(DotGroup, NothingIsAskedWhereNoIntegerIsNegative) {
  G t;
  const Experts e{.rows = 3, .experts = 4};
  const graph::ValueId h = t.in("h", {e.rows, e.picked, e.deep});
  const graph::ValueId picks = t.b.binary(ScalarOp::max_, picks_of(t, e), t.b.scalar(0, Scalar::i32));
  t.out(t.b.contract_gather(h, weight_of(t, e), picks, "njk", "efk", "nj"));
  EXPECT_FALSE(any(check(t.g, {.limits = {{"picks", 4}}}), "zeros of"));
}

TEST(DotGroup, AnIntegerOutsideIsAnError) {
  for (const int64_t rows : {1, 30}) {
    const G t = second_of_experts({.rows = rows, .experts = 4});
    auto inputs = random_inputs(t.g, {.limits = {{"picks", 4}}});
    inputs.at("picks").values[1] = 7;
    const machine::MachineRef m = machine::find_machine("avx512");
    const PlanRun got = run_plan(graph::fuse(t.g), inputs, *m, loop_evaluator(*m));
    EXPECT_EQ(got.status.code, loop::kGuardIndex);
    EXPECT_EQ(got.status.detail, 7);
  }
}

}  // namespace
}  // namespace lumen::test
