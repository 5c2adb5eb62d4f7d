// needs: none. Integer dots of every format that has them: equal to exact sums over the same quantized activations, and
// as close to the unquantized sums as eight bits allow.
#include <gtest/gtest.h>

#include <cmath>

#include "kernel/synth/dot.h"
#include "kernel/synth/order/factor.h"
#include "number/library/library.h"
#include "tests/kernel/synth/gemm/dot_harness.h"

namespace lumen {
namespace {

using dot_test::type_of;
using graph::Builder;
using graph::Graph;
using graph::Role;
using graph::ValueId;

// What the first step makes of one row: a' p, and a' by group.
struct Quantized {
  std::vector<double> x, step;
};
Quantized quantize(const double* x, int64_t columns) {
  Quantized q;
  for (int64_t first = 0; first < columns; first += synth::kActivationGroup) {
    const int64_t last = std::min(columns, first + synth::kActivationGroup);
    float most = 0;
    for (int64_t i = first; i < last; ++i) most = std::max(most, std::abs(static_cast<float>(x[i])));
    const float inverse = most > 0 ? 127.0F / most : 0.0F, scale = most / 127.0F;
    for (int64_t i = first; i < last; ++i) {
      q.x.push_back(double{scale} * std::nearbyint(static_cast<float>(x[i]) * inverse));
      q.step.push_back(scale);
    }
  }
  return q;
}

// Whether the machine has integers for the format; checks the product when it does.
bool check(const FormatRef& f, const machine::Machine& m, int64_t rows, int64_t n, int64_t k) {
  Graph g;
  Builder build(g);
  const ValueId a = build.input("x", Role::data, type_of({rows, k}));
  const ValueId w = build.cast(build.input("w", Role::parameter, type_of({n, k}, f)), {Scalar::f32, nullptr});
  g.results = {build.contract(a, w, "mk", "nk", "mn")};
  g.result_names = {"y"};
  const graph::Plan plan = dot_test::one_dot_group(g);
  std::string why;
  if (!synth::factor_integer(*f, k, m, &why)) {
    const std::string chosen = synth::synthesize_dot(plan, plan.groups[0], m, {}).steps[0].plan;
    EXPECT_NE(chosen.find(why), std::string::npos) << chosen;  // nothing silent
    return false;
  }
  const auto bid = dot_test::steps_of_family(plan, m, {"skinny dot products", "integer rows"});
  if (!bid) return false;
  const synth::Synthesis& s = *bid;
  // A step before rounds the activations, or each block of lanes does.
  const bool streams = s.steps[0].plan.find("skinny") != std::string::npos;
  EXPECT_EQ(s.steps.size(), streams ? 1U : 2U);
  if (!streams && s.steps.size() != 2) return false;
  EXPECT_EQ(s.scratch.size(), streams ? 0U : 3U);
  std::mt19937 random(5);
  std::map<std::string, graph::Tensor> inputs;
  for (ValueId v : g.inputs()) inputs[g[v].attributes.name] = dot_test::random_tensor(g[v].type, random);
  for (int64_t i = 0; i < std::min<int64_t>(k, 32); ++i)
    inputs["x"].values[static_cast<size_t>(i)] = 0;  // a group of zeros
  const std::vector<float> weight = decode(*f, inputs["w"].blob, n, k);
  const std::vector<float> got = dot_test::floats_of(dot_test::run_evaluated(s, plan, inputs, m));
  for (int64_t r = 0; r < rows; ++r) {
    const double* x = inputs["x"].values.data() + r * k;
    const Quantized q = quantize(x, k);
    for (int64_t c = 0; c < n; ++c) {
      double same = 0, plain = 0, size = 0, bound = 0;
      for (int64_t i = 0; i < k; ++i) {
        const double v = weight[static_cast<size_t>(c * k + i)];
        same += v * q.x[static_cast<size_t>(i)];
        plain += v * x[i];
        size += std::abs(v);
        bound += std::abs(v) * q.step[static_cast<size_t>(i)] * 0.5001;
      }
      const double y = got[static_cast<size_t>(r * n + c)];
      EXPECT_NEAR(y, same, 2e-5 * (1 + size))
          << f->name << " " << m.name << " " << r << "," << c << " " << s.steps.back().plan;
      EXPECT_LE(std::abs(y - plain), bound + 2e-5 * (1 + size)) << f->name;
    }
  }
  return true;
}

TEST(DotInteger, EqualsExactSumsOfTheSameCodes) {
  const FormatLibrary library = FormatLibrary::builtin();
  std::map<std::string, int> with_integers;
  for (const char* name : {"avx512-vbmi", "avx512-vnni", "avx512", "x86-64-v3", "neon", "neon-dotprod"}) {
    const auto m = machine::find_machine(name);
    for (const FormatRef& f : library.all())
      if (f->encodes()) with_integers[name] += check(f, *m, 2, 5, f->block * std::max<int64_t>(1, 96 / f->block));
  }
  for (const auto& [name, count] : with_integers) EXPECT_GE(count, 8) << name;
}

TEST(DotInteger, UnitsInTheOrderOfTheirBits) {
  const FormatLibrary library = FormatLibrary::builtin();
  for (const char* name : {"avx512-vbmi", "x86-64-v3", "neon-dotprod"}) {
    const auto m = machine::find_machine(name);
    for (const FormatRef& f : library.all())
      if (f->encodes()) check(f, *m, 1, 3, (1024 / f->block + 1) * f->block);
  }
}

TEST(DotInteger, TailsThatFillNoInstruction) {
  const FormatRef f = FormatLibrary::builtin().find("q4_0");
  ASSERT_TRUE(f);
  for (int64_t k : {32, 96, 160})
    for (int64_t n : {3, 9}) EXPECT_TRUE(check(f, *machine::find_machine("avx512-vnni"), 3, n, k));
}

// Lanes of a wave share the units of K, and what is left of them; several rows of b at once.
TEST(DotInteger, ByWaves) {
  const FormatLibrary library = FormatLibrary::builtin();
  for (const char* machine : {"sm_90a", "gfx906", "gfx1201"})
    for (const char* format : {"q4_0", "q8_0", "q4_k", "q6_k", "int3_g128", "int4_g32_asym"}) {
      SCOPED_TRACE(std::string(machine) + " " + format);
      const FormatRef f = library.find(format);
      const auto m = machine::find_machine(machine);
      const int64_t rows = m->matrices.empty() ? 2 : 1;  // of more, matrix instructions take care
      EXPECT_TRUE(check(f, *m, rows, 7, f->block * (f->block < 64 ? 37 : 5)));
    }
}

TEST(Factor, SaysWhyThereAreNoIntegers) {
  std::string why;
  const FormatRef f = FormatLibrary::builtin().find("f32");
  EXPECT_FALSE(synth::factor_integer(*f, 64, *machine::find_machine("avx512-vnni"), &why));
  EXPECT_EQ(why, "not affine in integers");
}

TEST(Factor, BiasBringsCodesIntoTheRow) {
  std::string why;
  const FormatRef f = FormatLibrary::builtin().find("q8_0");
  const auto vnni = synth::factor_integer(*f, 64, *machine::find_machine("avx512-vnni"), &why);
  ASSERT_TRUE(vnni) << why;
  EXPECT_EQ(vnni->bias, -128);  // u8 codes
  const auto arm = synth::factor_integer(*f, 64, *machine::find_machine("neon-dotprod"), &why);
  ASSERT_TRUE(arm) << why;
  EXPECT_EQ(arm->bias, 0);  // i8 codes
  const auto pairs = synth::factor_integer(*f, 64, *machine::find_machine("x86-64-v3"), &why);
  ASSERT_TRUE(pairs) << why;
  EXPECT_EQ(pairs->row.a, Scalar::i16);  // the byte row would saturate
}

}  // namespace
}  // namespace lumen
