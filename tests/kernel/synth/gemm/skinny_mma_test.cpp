// needs: none. A few rows beside a weight that streams through shared memory into the registers of matrix instructions:
// formats of every kind, machines with waves of 32 and 64 and every way of holding factors, sizes that do not divide
// evenly, every plan the model offers; against sums of the codec's numbers.
#include "kernel/synth/gemm/skinny/skinny_mma.h"

#include <gtest/gtest.h>

#include <cmath>

#include "kernel/synth/dot.h"
#include "kernel/synth/gemm/operand/dot_prepare.h"
#include "number/library/library.h"
#include "tests/kernel/synth/gemm/dot_harness.h"

namespace lumen {
namespace {

using dot_test::type_of;
using graph::Graph;
using graph::Role;
using graph::ValueId;

Graph product(const FormatRef& f, int64_t rows, int64_t n, int64_t k, Scalar plain = Scalar::f32) {
  Graph g;
  graph::Builder build(g);
  const ValueId a = build.input("x", Role::data, type_of({rows, k}));
  graph::Type type = type_of({n, k}, f);
  if (!f) type.element.scalar = plain;
  ValueId w = build.input("w", Role::parameter, type);
  if (f) w = build.cast(w, {Scalar::f32, nullptr});
  g.results = {build.contract(a, w, "mk", "nk", "mn")};
  g.result_names = {"y"};
  return g;
}

// Activations and numbers are rounded to f16 or bf16 each, at most. Rows of activations times `sizes`, in turn.
void expect_product(const synth::Synthesis& s, const graph::Plan& plan, const FormatRef& f, const machine::Machine& m,
                    int64_t rows, int64_t n, int64_t k, const std::vector<float>& sizes = {1}) {
  SCOPED_TRACE((f ? f->name : "plain") + " " + m.name + " " + s.steps.back().plan);
  std::mt19937 random(7);
  std::map<std::string, graph::Tensor> inputs;
  for (ValueId v : plan.graph.inputs())
    inputs[plan.graph[v].attributes.name] = dot_test::random_tensor(plan.graph[v].type, random);
  for (int64_t i = 0; i < rows * k; ++i)
    inputs["x"].values[static_cast<size_t>(i)] *= sizes[static_cast<size_t>(i / k) % sizes.size()];
  const double digits = s.steps.back().plan.find("rounded to f16") != std::string::npos ? 0.0025 : 0.012;
  std::vector<float> weight(inputs["w"].values.begin(), inputs["w"].values.end());
  if (f) weight = decode(*f, inputs["w"].blob, n, k);
  const std::vector<float> got = dot_test::floats_of(dot_test::run_evaluated(s, plan, inputs, m));
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t c = 0; c < n; ++c) {
      double want = 0, size = 0;
      for (int64_t i = 0; i < k; ++i) {
        const double v = weight[static_cast<size_t>(c * k + i)], x = inputs["x"].values[static_cast<size_t>(r * k + i)];
        want += v * x;
        size += v * x * v * x;
      }
      ASSERT_NEAR(got[static_cast<size_t>(r * n + c)], want,
                  std::sqrt(size) * digits + 1e-5 * sizes[static_cast<size_t>(r) % sizes.size()])
          << r << "," << c;
    }
}

bool is_skinny_mma(const synth::Synthesis& s) {
  return s.steps.size() == 2 && s.steps[1].plan.find("skinny") != std::string::npos &&
         s.steps[1].plan.find("mma.") != std::string::npos;
}

constexpr std::string_view kFamily = "skinny matrix";

TEST(SkinnyMma, EveryFormat) {
  const FormatLibrary library = FormatLibrary::builtin();
  int streams = 0, number = 0;
  for (const char* name : {"sm_90a", "gfx942", "gfx1201"}) {
    const auto m = machine::find_machine(name);
    for (const FormatRef& f : library.all()) {
      if (!f->encodes() || ++number % 5 != 0) continue;
      const int64_t k = f->block * std::max<int64_t>(1, 256 / f->block) * 4;
      const Graph g = product(f, 3, 21, k);
      const graph::Plan plan = dot_test::one_dot_group(g);
      const auto s = dot_test::steps_of_family(plan, *m, {kFamily});
      if (!s) continue;
      ++streams;
      expect_product(*s, plan, f, *m, 3, 21, k);
    }
  }
  EXPECT_GE(streams, 20);
}

// Codes of four bits, with offsets, in three bits across bytes, nested scales, in two places, of eight bits, tables,
// small floats, scales of rows, bits apart (blocks of lanes' own).
constexpr const char* kKinds[] = {"q4_0", "q4_1", "int4_g32_asym", "int3_g128", "q4_k",     "q6_k",
                                  "q8_0", "nf4",  "mxfp4",         "fp8_e4m3",  "int8_row", "q5_0"};

TEST(SkinnyMma, EveryPlanOfEveryKind) {
  const FormatLibrary library = FormatLibrary::builtin();
  size_t number = 0;
  for (const char* name : {"sm_90a", "gfx942", "gfx1100"}) {
    const auto m = machine::find_machine(name);
    for (const char* format : kKinds) {
      const FormatRef f = library.find(format);
      ASSERT_TRUE(f) << format;
      const int64_t k = std::max<int64_t>(768, f->block * 6), n = 37;
      const Graph g = product(f, 5, n, k);
      const graph::Plan plan = dot_test::one_dot_group(g);
      const synth::DotProblem p = synth::normalise_dot(plan, plan.groups[0]);
      const auto plans = synth::choose_skinny_mmas(p, *m, false);
      // Where every lane holds whole rows, long blocks would need too many registers.
      EXPECT_EQ(plans.empty(), f->block > 64 && m->name == "gfx1100") << format << " " << name;
      for (size_t i = number++ % 3; i < plans.size(); i += 9) {
        synth::Synthesis s;
        synth::write_skinny_mma(g, p, plans[i], *m, s);
        expect_product(s, plan, f, *m, 5, n, k);
      }
    }
  }
}

TEST(SkinnyMma, Rows) {
  const FormatRef f = FormatLibrary::builtin().find("q4_0");
  for (const char* name : {"sm_80", "gfx90a", "gfx1201"}) {
    const auto m = machine::find_machine(name);
    for (const int64_t rows : {3, 8, 16, 17, 32}) {
      const Graph g = product(f, rows, 40, 384);
      const graph::Plan plan = dot_test::one_dot_group(g);
      const auto s = dot_test::steps_of_family(plan, *m, {kFamily});
      ASSERT_TRUE(s && is_skinny_mma(*s)) << name << " " << rows;
      expect_product(*s, plan, f, *m, rows, 40, 384);
    }
  }
}

// Those that f16 has no room for.
TEST(SkinnyMma, ActivationsOfEverySize) {
  for (const char* name : {"sm_90a", "gfx942"})
    for (const char* format : {"q4_0", "q8_0", "fp8_e4m3"}) {
      const auto m = machine::find_machine(name);
      const FormatRef f = FormatLibrary::builtin().find(format);
      const Graph g = product(f, 5, 24, 512);
      const graph::Plan plan = dot_test::one_dot_group(g);
      const auto s = dot_test::steps_of_family(plan, *m, {kFamily});
      ASSERT_TRUE(s && is_skinny_mma(*s)) << name << " " << format;
      EXPECT_NE(s->steps.back().plan.find("rounded to f16"), std::string::npos) << s->steps.back().plan;
      expect_product(*s, plan, f, *m, 5, 24, 512, {1e30f, 1e-30f, 0, 1, 7e4f});
    }
}

// Pieces of sixteen bytes, where a stage has 420 of a row.
TEST(SkinnyMma, StagesThatAreNoWholePieces) {
  const FormatRef f = FormatLibrary::builtin().find("q6_k");
  const auto m = machine::find_machine("sm_90a");
  const Graph g = product(f, 3, 40, 2048);
  const graph::Plan plan = dot_test::one_dot_group(g);
  const synth::DotProblem p = synth::normalise_dot(plan, plan.groups[0]);
  int found = 0;
  for (const synth::SkinnyMmaPlan& t : synth::choose_skinny_mmas(p, *m, false)) {
    if (t.copies().step() == t.vector || t.vector != 16 || ++found > 2) continue;
    synth::Synthesis s;
    synth::write_skinny_mma(g, p, t, *m, s);
    expect_product(s, plan, f, *m, 3, 40, 2048);
  }
  EXPECT_GE(found, 1);
}

TEST(SkinnyMma, SixteenBitFloatsAsTheyAre) {
  for (const char* name : {"sm_90a", "gfx950"})
    for (const Scalar s : {Scalar::bf16, Scalar::f16}) {
      const auto m = machine::find_machine(name);
      const Graph g = product(nullptr, 9, 33, 416, s);
      const graph::Plan plan = dot_test::one_dot_group(g);
      const auto made = dot_test::steps_of_family(plan, *m, {kFamily});
      ASSERT_TRUE(made && is_skinny_mma(*made)) << name;
      expect_product(*made, plan, nullptr, *m, 9, 33, 416);
    }
}

TEST(SkinnyMma, OthersKeepTheirWays) {
  const FormatRef f = FormatLibrary::builtin().find("q4_0");
  const auto plan_of = [&](const char* machine, int64_t rows, bool exact) {
    const Graph g = product(f, rows, 4096, 4096);
    const graph::Plan plan = dot_test::one_dot_group(g);
    return synth::synthesize_dot(plan, plan.groups[0], *machine::find_machine(machine), {.exact = exact});
  };
  EXPECT_TRUE(is_skinny_mma(plan_of("sm_90a", 4, false)));
  EXPECT_FALSE(is_skinny_mma(plan_of("sm_90a", 4, true)));
  EXPECT_FALSE(is_skinny_mma(plan_of("sm_90a", 1, false)));
  EXPECT_FALSE(is_skinny_mma(plan_of("sm_90a", 2, false)));  // dots of integers
  EXPECT_TRUE(is_skinny_mma(plan_of("sm_90a", 33, false)));
  EXPECT_FALSE(is_skinny_mma(plan_of("sm_90a", 129, false)));
  EXPECT_FALSE(is_skinny_mma(plan_of("gfx942", 33, false)));  // measured on others alone
  EXPECT_FALSE(is_skinny_mma(plan_of("gfx906", 4, false)));
  EXPECT_FALSE(is_skinny_mma(plan_of("gfx1030", 4, false)));
}

}  // namespace
}  // namespace lumen
