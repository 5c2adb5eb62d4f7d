// needs: none. Products of activations held in a format, on GPUs: their codes in matrix instructions, scales behind the
// sums, and whatever else is cheapest; against the evaluator.
#include "kernel/synth/gemm/operand/row_scales.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <string_view>

#include "kernel/synth/gemm/gpu/dot_block.h"
#include "lang/parser.h"
#include "number/library/library.h"
#include "tests/kernel/synth/coded_cases.h"
#include "tests/kernel/synth/gemm/dot_harness.h"

namespace lumen {
namespace {

using namespace dot_test;
using graph::ValueId;

const FormatLibrary& library() {
  static const FormatLibrary all = FormatLibrary::builtin();
  return all;
}

struct Case {
  const char *activations, *weights;
  int64_t rows, columns = 64, outputs = 32;
  bool maps = true;
};

struct Product {
  graph::Plan plan;
  std::map<std::string, graph::Tensor> inputs;
  std::vector<double> want;
};

// The group of the product alone: what it reads has been encoded by another.
Product product_of(const Case& c) {
  graph::Graph g;
  graph::Builder b(g);
  const ValueId x = b.input("x", graph::Role::data, type_of({c.rows, c.columns}));
  const ValueId w = b.input("w", graph::Role::parameter, type_of({c.outputs, c.columns}, library().get(c.weights)));
  const ValueId blob = b.cast(x, {Scalar::f32, library().get(c.activations)});
  const ValueId decoded = b.cast(blob, {}), weight = b.cast(w, {});
  ValueId r = b.contract(decoded, weight, "mk", "nk", "mn");
  if (c.maps) r = b.unary(ScalarOp::tanh_, b.mul(r, b.scalar(0.25)));
  g.results = {r};
  g.result_names = {"r"};
  Product out;
  std::mt19937 random(7);
  out.inputs["x"] = random_tensor(g[x].type, random);
  out.inputs["w"] = random_tensor(g[w].type, random);
  out.want = graph::eval(g, out.inputs)[0].values;
  graph::Graph only = g;
  only.results = {blob};
  out.inputs["%" + std::to_string(blob)] = graph::eval(only, out.inputs)[0];
  out.plan.graph = g;
  graph::Group group;
  group.shape = graph::KernelShape::dot;
  group.inputs = {w, blob};
  for (ValueId v = decoded; v < std::ssize(g.nodes); ++v) group.nodes.push_back(v);
  for (ValueId v = 0; v < std::ssize(g.nodes); ++v)
    if (g[v].op == graph::Op::contract_) group.root = v;
  group.results = {r};
  out.plan.groups.push_back(group);
  return out;
}

// The largest error of what the steps give, beside the largest number.
double error_of(const synth::Synthesis& s, const Product& p, const machine::Machine& m) {
  const std::vector<float> got = floats_of(run_evaluated(s, p.plan, p.inputs, m));
  double off = 0, size = 0;
  for (size_t i = 0; i < p.want.size(); ++i) {
    off = std::max(off, std::abs(got[i] - p.want[i]));
    size = std::max(size, std::abs(p.want[i]));
  }
  return off / size;
}

// Weights may be rounded to 16 bits beside matrix instructions; activations may not.
void check(const Case& c, const char* target, const char* wanted, bool exact = false, double most = 2e-3) {
  const machine::Machine& m = *machine::find_machine(target);
  const Product p = product_of(c);
  synth::Options options;
  options.exact = exact;
  const synth::Synthesis s = synth::synthesize_dot(p.plan, p.plan.groups[0], m, options);
  std::string plan;
  for (const synth::Step& step : s.steps) plan += step.plan + "\n";
  EXPECT_LT(error_of(s, p, m), most) << c.activations << " " << c.weights << " " << c.rows << " " << target << "\n"
                                     << plan;
  EXPECT_NE(plan.find(wanted), std::string::npos) << target << "\n" << plan;
}

// Weights whose numbers are 16-bit floats lose nothing, so that the sums are those of the evaluator: a second rounding
// of activations would be a hundred times larger.
TEST(RowScales, CodesMeetMatrixInstructions) {
  for (const char* target : {"sm_90a", "sm_80", "gfx942"})
    for (const char* activations : {"int8_row", "int8", "fp8_row", "fp8_tensor"})
      check({activations, "bf16", 64, 128, 64}, target, "mma", false, 1e-5);
  check({"int8_row", "q4_0", 64, 128, 64}, "sm_90a", "");
  check({"int8_row", "bf16", 40, 96, 24, false}, "sm_90a", "", false, 1e-5);
}

TEST(RowScales, CodesOfOneFloatMeetItsInstructions) {
  check({"fp8_row", "fp8_row", 64, 128, 64}, "sm_90a", "e4m3", false, 1e-5);
  check({"fp8_tensor", "fp8_row", 64, 128, 64}, "sm_89", "e4m3", false, 1e-5);
}

TEST(RowScales, CodesOfTwoFloatsMeetInOneInstruction) {
  for (const char* target : {"sm_90a", "gfx950"})
    check({"fp8_e5m2_tensor", "fp8_row", 64, 128, 64}, target, "e5m2e4m3", false, 1e-5);
  for (const char* target : {"sm_89", "gfx1201"})
    check({"fp8_row", "fp8_e5m2_row", 64, 128, 64}, target, "e4m3e5m2", false, 1e-5);
}

// Scales of groups, offsets, and users who want f32: in f32, or as integers where few rows meet them.
TEST(RowScales, WhatHasNoneStaysExact) {
  for (const char* activations : {"int8_block", "mxfp8_e4m3", "int4_g32_asym"})
    check({activations, "int8_row", 64, 128, 64}, "sm_90a", "", false, 1e-5);
  check({"int8_row", "int8_row", 64, 128, 64}, "sm_90a", "", true, 1e-5);
  for (const int64_t rows : {1, 3}) check({"int8_row", "int8_row", rows, 128, 64}, "sm_90a", "", false, 1e-5);
}

// Integers of a byte meet in integer instructions, with sums of 32 bits, where something has executed those. What is no
// integer meets as on any machine, so two of them show it; LUMEN_CODED_CASES=all: all do.
TEST(RowScales, IntegersOfAStepMeetInIntegerInstructions) {
  for (const char* name : {"gfx90a", "gfx942", "gfx950", "gfx1100", "gfx1201", "sm_90a"})
    for (const test::CodedCase& c : test::coded_cases()) {
      const bool shown = std::string_view(name) == "gfx942" || std::string_view(name) == "sm_90a";
      if (!shown && !std::string_view(c.a).starts_with("int8") && !std::getenv("LUMEN_CODED_CASES")) continue;
      test::Check inexact{.tolerance = 1e-4, .machines = {name}, .options = {.exact = false}};
      const auto plans = test::check(test::coded_graph(c).g, inexact);
      const bool integers =
          std::string(c.a).starts_with("int8") && !c.across && machine::find_machine(name)->has_integer_blocks;
      EXPECT_EQ(test::any_contains(plans, "i8i8.i32"), integers) << name << " " << plans.back();
    }
}

// Codes times scales of few digits are 16-bit floats exactly; what the tensor shares, a divisor too, comes behind the
// sums. Small products in f32 are no slower, so those are asked for here.
// Extents that 512 does not divide: scales come behind the longest runs of whole instructions that do.
TEST(RowScales, MatrixUnitsOfProcessorsSumLongRuns) {
  check({"int8_row", "int8_row", 37, 384, 48}, "amx", "scales of 384 tile.i8i8", false, 1e-5);
  check({"int8_row", "int8_row", 20, 768, 32}, "amx", "scales of 384 tile.i8i8", false, 1e-5);
  check({"int8_row", "int8_row", 20, 896, 32, false}, "amx", "scales of 448 tile.i8i8", false, 1e-5);
  check({"int8_row", "int8_row", 20, 1024, 32}, "amx", "scales of 512 tile.i8i8", false, 1e-5);
  check({"int8_row", "int8_row", 20, 96, 32}, "amx", "", false, 1e-5);
  check({"int8_row", "int8_row", 20, 768, 32}, "neon-i8mm", "square8.i8i8", false, 1e-5);
}

// Dots and matrix units of processors read bf16, which codes, and blocks of few digits, are exactly.
TEST(RowScales, ProcessorsMultiplyCodesAsShortFloats) {
  for (const char* name : {"amx", "avx512-bf16"}) {
    int shown = 0;
    for (const test::CodedCase& c : test::coded_cases()) {
      test::Check inexact{.tolerance = 1e-5, .machines = {name}, .options = {.exact = false}};
      const auto plans = test::check(test::coded_graph(c).g, inexact);
      shown += test::any_contains(plans, "bf16bf16.f32") ? 1 : 0;
    }
    EXPECT_GE(shown, 5) << name;
    for (const auto& [a, b] : {std::pair{"fp8_row", "fp8_row"}, std::pair{"fp8_e5m2", "fp8_e4m3"},
                               std::pair{"fp8_two_level", "fp8_tensor"}, std::pair{"mxfp8_e4m3_up", "mxfp8_e5m2"}}) {
      const std::string plans = test::plans_of_coded({2048, 2048, 2048, a, b}, name);
      EXPECT_NE(plans.find("bf16bf16.f32"), std::string::npos) << name << " " << a << " " << b << "\n" << plans;
    }
  }
  const std::string plans = test::plans_of_coded({2048, 2048, 2048, "int8_row", "int8_row"}, "amx");
  EXPECT_NE(plans.find("tile.i8i8"), std::string::npos) << plans;
}

TEST(RowScales, BlocksOfFewDigitsMeetMatrixInstructions) {
  for (const auto& [a, b] : {std::pair{"nvfp4_divided", "nvfp4_divided"}, std::pair{"nvfp4_tensor", "mxfp4_up"},
                             std::pair{"fp8_two_level", "fp8_tensor"}}) {
    SCOPED_TRACE(fmt::format("{} by {}", a, b));
    const std::string plans = test::plans_of_coded({4096, 4096, 4096, a, b}, "sm_90a");
    EXPECT_NE(plans.find("bf16bf16.f32"), std::string::npos) << plans;
    EXPECT_EQ(plans.find("rounded"), std::string::npos) << plans;
    const Product p = product_of({a, b, 96, 128, 64, false});
    for (const char* target : {"sm_80", "gfx942"}) {
      const machine::Machine& m = *machine::find_machine(target);
      const auto scaled = synth::with_row_scales(synth::normalise_dot(p.plan, p.plan.groups[0]), m, true);
      ASSERT_TRUE(scaled) << target;
      const std::vector<synth::BlockDot> dots = synth::choose_block_dots(*scaled, m, false, 0);
      ASSERT_FALSE(dots.empty()) << target;
      synth::Synthesis s;
      synth::write_block_dot(p.plan.graph, dots[0], m, s);
      EXPECT_NE(s.steps.back().plan.find("bf16bf16.f32"), std::string::npos) << s.steps.back().plan;
      EXPECT_LT(error_of(s, p, m), 1e-5) << target;
    }
  }
}

}  // namespace
}  // namespace lumen
