// needs: none. Dots of 16-bit floats for every format that has them: as close to the codec's numbers and the rounded
// activations as the split of a number and sums in f32 allow, and to the plain ones as eight bits of mantissa do.
#include "kernel/synth/gemm/cpu/dot_short.h"

#include <gtest/gtest.h>

#include <cmath>
#include <set>

#include "kernel/synth/dot.h"
#include "number/formula/scalar.h"
#include "number/library/library.h"
#include "tests/kernel/synth/gemm/dot_harness.h"

namespace lumen {
namespace {

using dot_test::type_of;
using graph::Builder;
using graph::Graph;
using graph::Role;
using graph::ValueId;

struct Case {
  graph::Plan plan;
  std::map<std::string, graph::Tensor> inputs;
};

Case make_case(const FormatRef& f, int64_t rows, int64_t n, int64_t k) {
  Graph g;
  Builder build(g);
  const ValueId a = build.input("x", Role::data, type_of({rows, k}));
  const ValueId w = build.cast(build.input("w", Role::parameter, type_of({n, k}, f)), {Scalar::f32, nullptr});
  g.results = {build.contract(a, w, "mk", "nk", "mn")};
  g.result_names = {"y"};
  Case c;
  c.plan = dot_test::one_dot_group(g);
  std::mt19937 random(7);
  for (ValueId v : g.inputs()) c.inputs[g[v].attributes.name] = dot_test::random_tensor(g[v].type, random);
  return c;
}

std::vector<float> run(const Case& c, const machine::Machine& m, std::string* plan) {
  const auto shorts = dot_test::steps_of_family(c.plan, m, {"16-bit rows"});
  const synth::Synthesis s = shorts ? *shorts : synth::synthesize_dot(c.plan, c.plan.groups[0], m, {});
  *plan = s.steps.back().plan;
  return dot_test::floats_of(dot_test::run_evaluated(s, c.plan, c.inputs, m));
}

bool has_shorts(const Format& f, int64_t columns, const machine::Machine& m) {
  std::string why;
  return !synth::factor_integer(f, columns, m, &why) && synth::factor_short(f, m, &why);
}

void check(const FormatRef& f, const machine::Machine& m, int64_t rows, int64_t n, int64_t k) {
  const Case c = make_case(f, rows, n, k);
  std::string plan;
  const std::vector<float> got = run(c, m, &plan);
  EXPECT_NE(plan.find("activations bf16"), std::string::npos) << plan;  // nothing silent
  const std::vector<float> weight = decode(*f, c.inputs.at("w").blob, n, k);
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t column = 0; column < n; ++column) {
      double same = 0, plain = 0, size = 0;
      for (int64_t i = 0; i < k; ++i) {
        const double v = weight[static_cast<size_t>(column * k + i)];
        const double x = c.inputs.at("x").values[static_cast<size_t>(r * k + i)];
        same += v * bf16_to_f32(f32_to_bf16(static_cast<float>(x)));
        plain += v * x;
        size += std::abs(v * x);
      }
      const double y = got[static_cast<size_t>(r * n + column)];
      EXPECT_NEAR(y, same, 0x1p-16 * size + 1e-6) << f->name << " " << r << "," << column << " " << plan;
      EXPECT_NEAR(y, plain, (0x1p-9 + 0x1p-16) * size + 1e-6) << f->name << " " << plan;
    }
}

TEST(DotShort, EveryFormatOfNumbersByCode) {
  const FormatLibrary library = FormatLibrary::builtin();
  const auto m = machine::find_machine("avx512-bf16");
  int formats = 0;
  for (const FormatRef& f : library.all())
    if (f->encodes() && has_shorts(*f, 2 * 64 * f->block, *m)) {
      ++formats;
      check(f, *m, 1, 3, (192 / f->block + 1) * f->block);  // units and a rest, where blocks leave one
      check(f, *m, 2, 2, std::max<int64_t>(f->block, 64));
    }
  EXPECT_GE(formats, 10);
}

TEST(DotShort, RowsAndLeftOverElements) {
  const FormatLibrary library = FormatLibrary::builtin();
  const auto m = machine::find_machine("avx512-bf16");
  for (const FormatRef& f : library.all())
    if (f->encodes() && f->block <= 64 && has_shorts(*f, 256, *m))
      for (int64_t rows = 1; rows <= 6; ++rows) check(f, *m, rows, 7, f->block == 1 ? 97 : 3 * f->block);
}

// Every code, those that are no numbers alone in a row: what the codec says, or as little a number.
TEST(DotShort, EveryCode) {
  const FormatLibrary library = FormatLibrary::builtin();
  const auto m = machine::find_machine("avx512-bf16");
  int odd = 0;
  for (const FormatRef& f : library.all()) {
    if (!f->encodes() || f->block != 1 || f->fields.size() != 1 || f->block_bytes != 1 || !has_shorts(*f, 64, *m))
      continue;
    const int64_t n = int64_t{1} << f->fields[0].type.bits, k = 3;
    Case c = make_case(f, 1, n, k);
    graph::Tensor& w = c.inputs.at("w");
    const std::vector<uint8_t> zero = encode(*f, std::vector<float>(1, 0.0F), 1, 1);
    for (int64_t row = 0; row < n; ++row)
      for (int64_t i = 0; i < k; ++i)
        w.blob[static_cast<size_t>(row * k + i)] = i == k - 1 ? static_cast<uint8_t>(row) : zero[0];
    c.inputs.at("x").values = {1, 1, 0.5};
    std::string plan;
    const std::vector<float> got = run(c, *m, &plan), want = decode(*f, w.blob, n, k);
    for (int64_t row = 0; row < n; ++row) {
      const float v = want[static_cast<size_t>(row * k + k - 1)] * 0.5F, y = got[static_cast<size_t>(row)];
      odd += std::isfinite(v) ? 0 : 1;
      EXPECT_TRUE(std::isnan(v) ? std::isnan(y) : y == v) << f->name << " code " << row << ": " << y << " for " << v;
    }
  }
  EXPECT_GT(odd, 0);
}

TEST(DotShort, ExactOptionsKeepActivations) {
  const FormatLibrary library = FormatLibrary::builtin();
  const auto m = machine::find_machine("avx512-bf16");
  for (const FormatRef& f : library.all()) {
    if (!f->encodes() || !has_shorts(*f, 256, *m)) continue;
    const Case c = make_case(f, 1, 3, std::max<int64_t>(f->block, 64));
    const synth::Synthesis s = synth::synthesize_dot(c.plan, c.plan.groups[0], *m, {.exact = true});
    EXPECT_EQ(s.steps.size(), 1U);
    EXPECT_EQ(s.steps[0].plan.find("bf16"), std::string::npos) << s.steps[0].plan;
  }
}

TEST(DotShort, SaysWhyThereAreNone) {
  const FormatLibrary library = FormatLibrary::builtin();
  std::string why;
  EXPECT_FALSE(synth::factor_short(*library.find("f32"), *machine::find_machine("avx512-bf16"), &why));
  EXPECT_EQ(why, "not numbers by code");
  EXPECT_FALSE(synth::factor_short(*library.find("fp8_e4m3"), *machine::find_machine("avx512"), &why));
  EXPECT_EQ(why, "no dot of short floats");
}

}  // namespace
}  // namespace lumen
