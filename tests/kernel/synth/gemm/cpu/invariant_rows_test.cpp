// needs: none. Options::invariant: a row of activations gives the same bits alone and among any number of rows, on
// every processor, in every format: rows that share an unpacked panel are added in the order of one that does not.
#include <gtest/gtest.h>

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

constexpr int64_t kColumns = 7;

struct Product {
  graph::Plan plan;
  synth::Synthesis steps;
};

Product product_of(const FormatRef& f, const machine::Machine& m, int64_t rows, int64_t k, bool exact) {
  Graph g;
  Builder build(g);
  const ValueId a = build.input("x", Role::data, type_of({rows, k}));
  const ValueId w = build.input("w", Role::parameter, type_of({kColumns, k}, f));
  g.results = {build.contract(a, f ? build.cast(w, {Scalar::f32, nullptr}) : w, "mk", "nk", "mn")};
  g.result_names = {"y"};
  Product out{dot_test::one_dot_group(g), {}};
  synth::Options options;
  options.invariant = true;
  options.exact = exact;
  out.steps = synth::synthesize_dot(out.plan, out.plan.groups[0], m, options);
  return out;
}

// The rows of a batch, of `all`.
graph::Tensor first_rows(const graph::Tensor& all, int64_t from, int64_t rows, int64_t k) {
  graph::Tensor out;
  out.type = type_of({rows, k});
  out.values.assign(all.values.begin() + from * k, all.values.begin() + (from + rows) * k);
  return out;
}

// Whether some number of rows filled a panel.
bool check(const FormatRef& f, const machine::Machine& m, int64_t k, const std::vector<int64_t>& counts,
           bool exact = false) {
  const int64_t most = *std::ranges::max_element(counts);
  const Product one = product_of(f, m, 1, k, exact);
  std::mt19937 random(11);
  std::map<std::string, graph::Tensor> inputs;
  inputs["w"] = dot_test::random_tensor(type_of({kColumns, k}, f), random);
  const graph::Tensor x = dot_test::random_tensor(type_of({most, k}), random);
  std::vector<std::vector<float>> want;
  for (int64_t row = 0; row < most; ++row) {
    inputs["x"] = first_rows(x, row, 1, k);
    want.push_back(dot_test::floats_of(dot_test::run_evaluated(one.steps, one.plan, inputs, m)));
  }
  bool fills = false;
  for (const int64_t rows : counts) {
    const Product many = product_of(f, m, rows, k, exact);
    fills |= many.steps.steps.back().plan.find(" task " + std::to_string(rows) + "x") != std::string::npos;
    inputs["x"] = first_rows(x, 0, rows, k);
    const auto got = dot_test::floats_of(dot_test::run_evaluated(many.steps, many.plan, inputs, m));
    int64_t differ = 0;
    for (int64_t row = 0; row < rows; ++row)
      differ += std::memcmp(&got[static_cast<size_t>(row * kColumns)], want[static_cast<size_t>(row)].data(),
                            kColumns * sizeof(float)) != 0;
    EXPECT_EQ(differ, 0) << (f ? f->name : "f32") << " " << m.name << " " << rows << " rows of " << k << ": "
                         << many.steps.steps.back().plan;
  }
  return fills;
}

TEST(InvariantRows, OfEveryFormatOnEveryProcessor) {
  const FormatLibrary library = FormatLibrary::builtin();
  for (const char* name : {"avx512-vbmi", "avx512-bf16", "x86-64-v3", "avx-vnni", "neon-dotprod", "neon-bf16"}) {
    const auto m = machine::find_machine(name);
    ASSERT_TRUE(m) << name;
    int panels = 0;
    for (const FormatRef& f : library.all())
      if (f->encodes()) panels += check(f, *m, f->block * std::max<int64_t>(1, 288 / f->block), {8});
    panels += check(nullptr, *m, 288, {8});
    EXPECT_GE(panels, 8) << name;
  }
}

// Whole units of the order and what is left of K; numbers of rows that fill no slice, one, and several.
TEST(InvariantRows, OfEveryNumberOfRows) {
  const FormatLibrary library = FormatLibrary::builtin();
  for (const char* name : {"avx512-vbmi", "x86-64-v3", "neon-dotprod"})
    for (const char* format : {"q4_0", "q4_k", "q8_0", "q6_k", "f16"}) {
      const FormatRef f = library.find(format);
      ASSERT_TRUE(f) << format;
      const int64_t block = std::max<int64_t>(f->block, 32);
      check(f, *machine::find_machine(name), 512 + block, {2, 3, 5, 12, 16});
    }
}

// Activations in f32, where scales are applied to sums of values.
TEST(InvariantRows, WithActivationsInF32) {
  const FormatLibrary library = FormatLibrary::builtin();
  for (const char* name : {"avx512-vbmi", "x86-64-v3"})
    for (const char* format : {"q4_0", "q4_k", "q8_0", "bf16"})
      EXPECT_TRUE(check(library.find(format), *machine::find_machine(name), 512, {8}, true)) << name << " " << format;
}

}  // namespace
}  // namespace lumen
