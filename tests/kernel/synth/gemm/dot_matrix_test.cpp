// needs: none. Dots with many rows: integers equal exact sums over the same quantized activations and stay as close to
// the unquantized sums as eight bits allow; 16-bit floats as close as their rounding allows; tails of every index.
#include "kernel/synth/gemm/cpu/dot_matrix.h"

#include <gtest/gtest.h>

#include <cmath>

#include "kernel/synth/dot.h"
#include "number/library/library.h"
#include "tests/kernel/synth/gemm/dot_harness.h"

namespace lumen {
namespace {

using dot_test::type_of;
using graph::Builder;
using graph::Graph;
using graph::Role;
using graph::ValueId;

// What the first step makes of one row: a' p, and a' by element.
struct Quantized {
  std::vector<double> x, step;
};
Quantized quantize(const double* x, int64_t columns, int64_t group) {
  Quantized q;
  for (int64_t first = 0; first < columns; first += group) {
    const int64_t last = std::min(columns, first + group);
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

Graph product(int64_t rows, int64_t n, int64_t k, const FormatRef& f) {
  Graph g;
  Builder build(g);
  const ValueId a = build.input("x", Role::data, type_of({rows, k}));
  const ValueId w = build.cast(build.input("w", Role::parameter, type_of({n, k}, f)), {Scalar::f32, nullptr});
  g.results = {build.contract(a, w, "mk", "nk", "mn")};
  g.result_names = {"y"};
  return g;
}

// Whether the machine has integers for the format; checks the product when it does.
bool check(const FormatRef& f, const machine::Machine& m, int64_t rows, int64_t n, int64_t k) {
  const Graph g = product(rows, n, k, f);
  const graph::Plan plan = dot_test::one_dot_group(g);
  const synth::DotProblem problem = synth::normalise_dot(plan, plan.groups[0]);
  const synth::Synthesis s = synth::synthesize_dot(plan, plan.groups[0], m, {});
  std::string why;
  const auto chosen = synth::choose_matrix(problem, m, false, &why);
  if (chosen.empty() || !chosen.front().integers) {
    EXPECT_NE(s.steps.back().plan.find(why), std::string::npos) << s.steps.back().plan;  // nothing silent
    return false;
  }
  EXPECT_EQ(s.steps.size(), 2U);
  if (s.steps.size() != 2) return false;
  EXPECT_NE(s.steps[1].plan.find("matrix"), std::string::npos) << s.steps[1].plan;
  std::mt19937 random(5);
  std::map<std::string, graph::Tensor> inputs;
  for (ValueId v : g.inputs()) inputs[g[v].attributes.name] = dot_test::random_tensor(g[v].type, random);
  for (int64_t i = 0; i < std::min<int64_t>(k, 128); ++i) inputs["x"].values[static_cast<size_t>(i)] = 0;  // all zero
  const std::vector<float> weight = decode(*f, inputs["w"].blob, n, k);
  const std::vector<float> got = dot_test::floats_of(dot_test::run_evaluated(s, plan, inputs, m));
  for (int64_t r = 0; r < rows; ++r) {
    const double* x = inputs["x"].values.data() + r * k;
    const Quantized q = quantize(x, k, chosen.front().scale_group);
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
          << f->name << " " << m.name << " " << r << "," << c << " " << s.steps[1].plan;
      EXPECT_LE(std::abs(y - plain), bound + 2e-5 * (1 + size)) << f->name;
      if (testing::Test::HasFailure()) return true;
    }
  }
  return true;
}

TEST(DotMatrix, IntegersEqualExactSumsOfTheSameCodes) {
  const FormatLibrary library = FormatLibrary::builtin();
  std::map<std::string, int> with_integers;
  for (const char* name : {"avx512-vnni", "avx512", "avx-vnni", "x86-64-v3", "neon", "neon-dotprod"}) {
    const auto m = machine::find_machine(name);
    for (const FormatRef& f : library.all())
      if (f->encodes()) with_integers[name] += check(f, *m, 7, 5, f->block * std::max<int64_t>(1, 96 / f->block));
  }
  for (const auto& [name, count] : with_integers) EXPECT_GE(count, 8) << name;
}

TEST(DotMatrix, TailsOfEveryIndex) {
  const FormatRef f = FormatLibrary::builtin().find("q4_0");
  ASSERT_TRUE(f);
  const auto m = machine::find_machine("avx512-vnni");
  for (int64_t k : {32, 96, 160, 1696})  // the last in stages
    for (int64_t n : {3, 16, 37, 130}) EXPECT_TRUE(check(f, *m, k == 96 ? 8 : 13, n, k)) << n << " " << k;
}

TEST(DotMatrix, IntegersOnTheMatrixUnit) {
  const FormatRef f = FormatLibrary::builtin().find("int8_row");
  ASSERT_TRUE(f);
  for (const char* name : {"amx", "sme-256"})
    for (int64_t k : {512, 768})
      for (int64_t rows : {7, 37})
        EXPECT_TRUE(check(f, *machine::find_machine(name), rows, rows == 7 ? 70 : 19, k)) << name;
}

// Signed codes, unsigned ones, with starts and with offsets, groups of 32, and one group for a row that is multiplied
// in a loop; rows and columns that fill no pair and no vector.
TEST(DotMatrix, IntegersOfTwoRowsByTwo) {
  const FormatLibrary library = FormatLibrary::builtin();
  for (const char* machine_name : {"neon-i8mm", "sve-i8mm-256"}) {
    const auto m = machine::find_machine(machine_name);
    for (const char* name : {"q8_0", "q4_0", "q4_1", "q6_k", "int8_row"}) {
      const FormatRef f = library.find(name);
      ASSERT_TRUE(f) << name;
      const int64_t k = f->block * std::max<int64_t>(1, 160 / f->block);
      std::string why;
      const graph::Plan plan = dot_test::one_dot_group(product(13, 21, k, f));
      const auto chosen = synth::choose_matrix(synth::normalise_dot(plan, plan.groups[0]), *m, false, &why);
      ASSERT_FALSE(chosen.empty()) << name;
      EXPECT_TRUE(chosen.front().by_two) << machine_name << " " << name << " " << synth::describe(chosen.front());
      for (const int64_t rows : {7, 8, 13}) EXPECT_TRUE(check(f, *m, rows, rows == 8 ? 5 : 21, k));
    }
  }
}

// Sums of products of what the operands round to in bf16, and no further from the exact product than that explains.
void check_rounded(const graph::Type& weight, const std::string& ia, const std::string& ib, Scalar left,
                   const machine::Machine& m, int64_t rows, int64_t n, int64_t k) {
  Graph g;
  Builder build(g);
  graph::Type activations = ia == "mk" ? type_of({rows, k}) : type_of({k, rows});
  activations.element.scalar = left;
  const ValueId a = build.input("x", Role::data, activations);
  ValueId w = build.input("w", Role::parameter, weight);
  const FormatRef f = weight.element.format;
  if (f) w = build.cast(w, {Scalar::f32, nullptr});
  g.results = {build.contract(a, w, ia, ib, "mn")};
  g.result_names = {"y"};
  const graph::Plan plan = dot_test::one_dot_group(g);
  const synth::Synthesis s = synth::synthesize_dot(plan, plan.groups[0], m, {.exact = !f});
  ASSERT_EQ(s.steps.size(), 2U) << s.steps[0].plan;
  const char* row = !m.squares.empty() && m.tiles.empty() ? "square4.bf16bf16" : "bf16bf16";
  EXPECT_NE(s.steps[1].plan.find(row), std::string::npos) << s.steps[1].plan;
  std::mt19937 random(6);
  std::map<std::string, graph::Tensor> inputs;
  for (ValueId v : g.inputs()) inputs[g[v].attributes.name] = dot_test::random_tensor(g[v].type, random);
  const graph::Tensor &x = inputs["x"], &weights = inputs["w"];
  std::vector<double> dense = weights.values;
  if (f)
    for (const float v : decode(*f, weights.blob, ib == "nk" ? n : k, ib == "nk" ? k : n)) dense.push_back(double{v});
  const auto bytes = dot_test::run_evaluated(s, plan, inputs, m);
  const bool short_result = g[g.results[0]].type.element.scalar == Scalar::bf16;
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t c = 0; c < n; ++c) {
      double same = 0, plain = 0, size = 0;
      for (int64_t i = 0; i < k; ++i) {
        const double u = x.values[static_cast<size_t>(ia == "mk" ? r * k + i : i * rows + r)];
        const double v = dense[static_cast<size_t>(ib == "nk" ? c * k + i : i * n + c)];
        auto rounded = [](double z) { return double{bf16_to_f32(f32_to_bf16(static_cast<float>(z)))}; };
        same += rounded(u) * rounded(v);
        plain += u * v;
        size += std::abs(u * v);
      }
      double y = 0;
      const auto at = static_cast<size_t>(r * n + c);
      if (short_result) {
        uint16_t h;
        std::memcpy(&h, &bytes[at * 2], 2);
        y = double{bf16_to_f32(h)};
      } else {
        float z;
        std::memcpy(&z, &bytes[at * 4], 4);
        y = double{z};
      }
      const double store = short_result ? 0x1p-8 * std::abs(same) : 0;
      ASSERT_NEAR(y, same, store + 1e-5 * (1 + size)) << m.name << " " << r << "," << c << " " << s.steps[1].plan;
      ASSERT_LE(std::abs(y - plain), store + 0x1.02p-8 * size + 1e-5 * (1 + size));
    }
}

TEST(DotMatrix, SixteenBitFloatsRoundOnce) {
  const FormatLibrary library = FormatLibrary::builtin();
  for (const char* machine_name : {"avx512-bf16", "amx"}) {
    const auto m = machine::find_machine(machine_name);
    for (const char* name : {"fp8_e4m3", "mxfp8_e4m3", "fp8_row", "f16"}) {
      const FormatRef f = library.find(name);
      ASSERT_TRUE(f) << name;
      for (int64_t k : {32, 96, 352}) check_rounded(type_of({21, k}, f), "mk", "nk", Scalar::f32, *m, 13, 21, k);
    }
    for (const char* ia : {"mk", "km"})
      for (const char* ib : {"nk", "kn"}) {
        graph::Type w = std::string(ib) == "nk" ? type_of({37, 71}) : type_of({71, 37});
        w.element.scalar = Scalar::bf16;
        check_rounded(w, ia, ib, Scalar::bf16, *m, 19, 37, 71);
        // As a file holds it, whichever way it lies.
        check_rounded(type_of({w.shape[0].number(), w.shape[1].number()}, library.find("bf16")), ia, ib, Scalar::bf16,
                      *m, 19, 37, 71);
      }
  }
}

TEST(DotMatrix, SixteenBitFloatsOfOuterProducts) {
  const auto m = machine::find_machine("sme-256");
  check_rounded(type_of({21, 96}, FormatLibrary::builtin().find("fp8_e4m3")), "mk", "nk", Scalar::f32, *m, 13, 21, 96);
  graph::Type w = type_of({71, 37});
  w.element.scalar = Scalar::bf16;
  check_rounded(w, "km", "kn", Scalar::bf16, *m, 19, 37, 71);
}

TEST(DotMatrix, SixteenBitFloatsOfTwoRowsByTwo) {
  const FormatRef f = FormatLibrary::builtin().find("fp8_e4m3");
  ASSERT_TRUE(f);
  for (const char* machine_name : {"neon-bf16", "sve-bf16-256"}) {
    const auto m = machine::find_machine(machine_name);
    check_rounded(type_of({9, 96}, f), "mk", "nk", Scalar::f32, *m, 7, 9, 96);
    graph::Type w = type_of({37, 71});
    w.element.scalar = Scalar::bf16;
    check_rounded(w, "mk", "nk", Scalar::bf16, *m, 13, 37, 71);
    std::swap(w.shape[0], w.shape[1]);
    check_rounded(w, "km", "kn", Scalar::bf16, *m, 13, 37, 71);
  }
}

}  // namespace
}  // namespace lumen
