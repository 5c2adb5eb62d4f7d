// needs: none. Products under scales that change along K: sums of runs by matrix instructions, under their scales added
// in f32, by every kind of instruction and every way of the scales; against the evaluator.
#include <gtest/gtest.h>

#include <cmath>
#include <set>

#include "base/round_up.h"
#include "kernel/synth/gemm/gpu/dot_block.h"
#include "kernel/synth/gemm/operand/row_scales.h"
#include "number/library/library.h"
#include "tests/kernel/synth/coded_cases.h"
#include "tests/kernel/synth/gemm/dot_harness.h"

namespace lumen {
namespace {

struct Case {
  const char *a, *b;
  int64_t m, n, k;
  const char *ia = "mk", *ib = "nk";
  bool maps = false;
};

graph::Graph product(const Case& c) {
  graph::Graph g;
  graph::Builder build(g);
  const auto operand = [&](const char* name, const char* indices, const char* format) {
    std::vector<int64_t> dims;
    for (const char* i = indices; *i != 0; ++i) dims.push_back(*i == 'm' ? c.m : *i == 'n' ? c.n : *i == 'k' ? c.k : 2);
    const auto type = dot_test::type_of(dims, test::format_named(format));
    return build.cast(build.input(name, graph::Role::data, type), {});
  };
  const graph::ValueId x = operand("x", c.ia, c.a), y = operand("y", c.ib, c.b);
  graph::ValueId r = build.contract(x, y, c.ia, c.ib, c.ia[0] == 'b' ? "bmn" : "mn");
  if (c.maps) {
    graph::Type row;
    row.shape = {build.type(r).shape.back()};
    r = build.add(r, build.input("bias", graph::Role::data, row));
  }
  g.results = {r};
  g.result_names = {"r"};
  return g;
}

// Numbers whose magnitudes change along K and from row to row, so that every scale is another one.
graph::Tensor uneven(const graph::Type& type, std::mt19937& random) {
  if (!type.element.format) return dot_test::random_tensor(type, random);
  std::uniform_real_distribution<float> number(-1, 1);
  const int64_t columns = type.shape.back().number(), rows = graph::elements(type.shape).number() / columns;
  std::vector<float> x;
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t c = 0; c < columns; ++c)
      x.push_back(std::ldexp(number(random), static_cast<int>((2 * (c / 128) + 3 * (r / 128) + r % 3) % 5)));
  graph::Tensor t;
  t.type = type;
  t.blob = encode(*type.element.format, x, rows, columns);
  return t;
}

struct Numbers {
  graph::Plan plan;
  std::map<std::string, graph::Tensor> inputs;
  std::vector<double> want;
};

Numbers numbers_of(const Case& c) {
  Numbers out;
  const graph::Graph g = product(c);
  out.plan = dot_test::one_dot_group(g);
  std::mt19937 random(7);
  for (const graph::ValueId v : g.inputs()) out.inputs[g[v].attributes.name] = uneven(g[v].type, random);
  out.want = graph::eval(g, out.inputs).at(0).values;
  return out;
}

void check_plan(const Numbers& numbers, const machine::Machine& m, const synth::BlockDot& d) {
  synth::Synthesis s;
  synth::write_block_dot(numbers.plan.graph, d, m, s);
  SCOPED_TRACE(m.name + ": " + s.steps.back().plan);
  const std::vector<float> got = dot_test::floats_of(dot_test::run_evaluated(s, numbers.plan, numbers.inputs, m));
  double off = 0, size = 0;
  for (size_t i = 0; i < got.size(); ++i) {
    off = std::max(off, std::abs(got[i] - numbers.want[i]));
    size = std::max(size, std::abs(numbers.want[i]));
  }
  EXPECT_LT(off, 1e-5 * size);
}

// The best plan of each kind of instruction, tile and what is laid out before; of one of them parts of K as well.
void check(const Case& c, const char* target, const char* instruction, size_t most = 2) {
  SCOPED_TRACE(fmt::format("{} by {} {}x{}x{}", c.a, c.b, c.m, c.n, c.k));
  const machine::Machine& m = *machine::find_machine(target);
  const Numbers numbers = numbers_of(c);
  const auto p = synth::with_run_scales(synth::normalise_dot(numbers.plan, numbers.plan.groups[0]), m);
  ASSERT_TRUE(p) << target;
  size_t checked = 0;
  for (synth::BlockDot& d : synth::choose_block_dots(*p, m, false, 0)) {
    if (d.plan.tile.row->row.find(instruction) == std::string::npos) continue;
    EXPECT_TRUE(d.plan.tile.scales_runs);
    if (d.plan.splits > 1 && checked > 0) continue;
    if (checked == 1 && d.plan.stages > 2) {
      d.plan.split_stages = ceil_div(d.plan.stages, 2);
      d.plan.splits = ceil_div(d.plan.stages, d.plan.split_stages);
    }
    check_plan(numbers, m, d);
    if (++checked == most) break;
  }
  EXPECT_GT(checked, 0U) << target << " " << instruction;
}

TEST(RunScales, TilesOfOneByMany) {
  check({"fp8_1x128", "fp8_tile", 40, 136, 272, "mk", "nk", true}, "sm_90a", "product", 1);
  check({"fp8_1x128", "fp8_tile", 40, 136, 400, "mk", "nk", true}, "sm_89", "mma");
  check({"fp8_1x128_p2", "fp8_1x128", 40, 72, 272}, "sm_90a", "product", 1);
  check({"fp8_tile", "fp8_1x128", 136, 24, 272}, "sm_89", "mma", 1);
}

TEST(RunScales, MatricesReadAcrossTheirRows) {
  check({"fp8_1x128", "fp8_128x128_p2", 16, 144, 272, "mk", "kn"}, "sm_89", "mma", 1);
  check({"fp8_128x128_p2", "fp8_tile", 144, 16, 272, "km", "kn"}, "sm_89", "mma", 1);
}

TEST(RunScales, ScalesOnOneSideAndOfWholeRows) {
  check({"fp8_1x128", "fp8_row", 48, 80, 272}, "sm_89", "mma", 1);
  check({"fp8_tensor", "fp8_tile", 48, 80, 272}, "sm_89", "mma", 1);
  check({"fp8_1x128", "fp8_e5m2_tensor", 24, 40, 272}, "sm_89", "e4m3e5m2", 1);
}

TEST(RunScales, Integers) {
  const Case c{"int8_1x128", "int8_1x128", 40, 72, 272};
  check(c, "sm_90a", "product", 1);
  check(c, "sm_80", "i8i8.i32", 1);
  check(c, "gfx942", "i8i8.i32", 1);
  check(c, "gfx1100", "i8i8.i32", 1);
}

TEST(RunScales, AmdInstructions) {
  const Case c{"fp8_1x128", "fp8_tile", 40, 72, 272};
  check(c, "gfx950", "e4m3e4m3.f32", 1);
  check(c, "gfx1201", "e4m3e4m3.f32", 1);
}

// Codes that no instruction takes are multiplied as the 16-bit floats that they are.
TEST(RunScales, CodesAsShortFloats) {
  const Case c{"fp8_1x128", "fp8_tile", 72, 136, 272, "mk", "nk", true};
  for (const char* target : {"sm_80", "gfx90a", "gfx942", "gfx1100"}) check(c, target, "bf16bf16.f32", 1);
  check({"fp8_1x128", "fp8_128x128_p2", 80, 144, 272, "mk", "kn"}, "gfx942", "bf16bf16.f32", 1);
  check({"fp8_tile", "fp8_e5m2_tensor", 80, 72, 272}, "gfx942", "bf16bf16.f32", 1);
  for (const char* target : {"sm_80", "gfx942", "gfx1100"}) {
    const std::string plans = test::plans_of_coded({4096, 4096, 4096, "fp8_1x128", "fp8_tile"}, target);
    EXPECT_NE(plans.find("runs of 128 scaled"), std::string::npos) << plans;
    EXPECT_NE(plans.find("bf16bf16.f32"), std::string::npos) << plans;
  }
}

TEST(RunScales, Batches) {
  check({"fp8_1x128", "fp8_1x128", 24, 40, 256, "bmk", "bnk"}, "sm_89", "mma", 1);
  check({"fp8_tile", "fp8_tile", 24, 40, 256, "bmk", "bnk"}, "sm_89", "mma", 1);  // tiles span batches
}

// What has no such form, and what says no to short sums.
TEST(RunScales, WhatIsNoRun) {
  const auto has = [](const Case& c, const char* target) {
    const Numbers numbers = numbers_of(c);
    return synth::with_run_scales(synth::normalise_dot(numbers.plan, numbers.plan.groups[0]),
                                  *machine::find_machine(target))
        .has_value();
  };
  EXPECT_TRUE(has({"fp8_1x128", "fp8_tile", 8, 8, 128}, "sm_90a"));
  EXPECT_FALSE(has({"fp8_1x128", "fp8_tile", 8, 8, 128}, "sm_80"));   // no such instruction, and few rows
  EXPECT_FALSE(has({"fp8_1x128", "fp8_tile", 8, 8, 128}, "gfx942"));  // .. of other codes
  EXPECT_TRUE(has({"fp8_1x128", "fp8_tile", 96, 8, 128}, "gfx942"));
  EXPECT_FALSE(has({"fp8_row", "fp8_tensor", 8, 8, 128}, "sm_90a"));  // nothing changes along K
  EXPECT_FALSE(has({"fp8_1x128", "q8_0", 8, 8, 128}, "sm_90a"));
}

// What a training step multiplies is done so where it is the fastest.
TEST(RunScales, AreBidFor) {
  for (const auto& [a, b] : {std::pair{"fp8_1x128", "fp8_tile"}, std::pair{"fp8_1x128_p2", "fp8_128x128_p2"}}) {
    const std::string plans = test::plans_of_coded({4096, 4096, 4096, a, b}, "sm_90a");
    EXPECT_NE(plans.find("runs of 128 scaled"), std::string::npos) << plans;
  }
}

}  // namespace
}  // namespace lumen
