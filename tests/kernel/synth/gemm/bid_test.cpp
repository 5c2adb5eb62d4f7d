// needs: none. Families of kernels bid for contractions: what wins, what the others say, what the table of costs is
// for; and plans that the tuner may try give the same bits, on GPUs by the loop evaluator.
#include "kernel/synth/gemm/bid/bid.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "kernel/synth/dot.h"
#include "number/library/library.h"
#include "tests/kernel/synth/gemm/dot_harness.h"

namespace lumen {
namespace {

using dot_test::type_of;
using graph::Role;
using graph::ValueId;

struct Product {
  std::string format;
  int64_t rows, n, k;
  Scalar scalar = Scalar::f32;
};

graph::Plan plan_of(const Product& p) {
  graph::Graph g;
  graph::Builder build(g);
  graph::Type left = type_of({p.rows, p.k});
  left.element.scalar = p.scalar;
  const ValueId x = build.input("x", Role::data, left);
  const FormatRef f = p.format.empty() ? nullptr : FormatLibrary::builtin().get(p.format);
  graph::Type type = type_of({p.n, p.k}, f);
  if (!f) type.element.scalar = p.scalar;
  ValueId w = build.input("w", Role::parameter, type);
  if (f) w = build.cast(w, {Scalar::f32, nullptr});
  g.results = {build.contract(x, w, "mk", "nk", "mn")};
  g.result_names = {"y"};
  return dot_test::one_dot_group(g);
}

size_t family_count() {
  size_t count = 0;
#define LUMEN_FAMILY(...) ++count;
#include "kernel/synth/gemm/bid/families.def"
#undef LUMEN_FAMILY
  return count;
}

const synth::BidNote* note_of(const synth::Synthesis& s, const std::string& family) {
  const auto at = std::find_if(s.bids.begin(), s.bids.end(), [&](const auto& b) { return b.family == family; });
  return at == s.bids.end() ? nullptr : &*at;
}

TEST(Bids, EveryFamilyBidsOrSaysWhyNotAndTheCheapestIsWritten) {
  for (const machine::MachineRef& m : machine::all_machines())
    for (const Product& p : {Product{"q4_0", 1, 64, 256}, Product{"q4_0", 32, 64, 256}, Product{"nf4", 4, 64, 256},
                             Product{"", 8, 64, 64}, Product{"", 64, 128, 128, Scalar::bf16}}) {
      const graph::Plan plan = plan_of(p);
      const synth::Synthesis s = synth::synthesize_dot(plan, plan.groups[0], *m, {});
      SCOPED_TRACE(m->name + " " + s.steps.back().plan);
      ASSERT_EQ(s.bids.size(), family_count());
      EXPECT_TRUE(s.steps.back().plan.starts_with(s.bids[0].plan) || s.bids[0].family.ends_with("rows"));
      EXPECT_EQ(s.steps.back().cycles, s.bids[0].cycles);
      std::set<std::string> families;
      double before = 0;
      for (const synth::BidNote& b : s.bids) {
        EXPECT_TRUE(families.insert(b.family).second) << b.family;
        EXPECT_EQ(b.refused.empty(), !b.plan.empty()) << b.family;
        if (!b.refused.empty()) continue;
        EXPECT_GT(b.cycles, 0) << b.family;
        EXPECT_GE(b.cycles, before) << b.family;
        before = b.cycles;
      }
    }
}

TEST(Bids, RefusalsNameTheirReason) {
  const machine::MachineRef m = machine::find_machine("avx512-vnni");
  const graph::Plan plan = plan_of({"q4_0", 2, 64, 256});
  const synth::Synthesis exact = synth::synthesize_dot(plan, plan.groups[0], *m, {.exact = true});
  EXPECT_EQ(note_of(exact, "integer rows")->refused, "activations are to stay f32");
  EXPECT_EQ(note_of(exact, "rows")->refused, "");
  const synth::Synthesis s = synth::synthesize_dot(plan, plan.groups[0], *m, {});
  EXPECT_EQ(s.bids[0].family, "integer rows");
  EXPECT_NE(note_of(s, "blocks")->refused, "");
}

// Costs are the machine's: where integers are dear, others win.
TEST(Bids, TheTableOfCostsDecides) {
  machine::Machine m = *machine::find_machine("avx512-vnni");
  const graph::Plan plan = plan_of({"q4_0", 2, 64, 256});
  EXPECT_EQ(synth::synthesize_dot(plan, plan.groups[0], m, {}).bids[0].family, "integer rows");
  double* cost = m.costs.find("codes.integer");
  ASSERT_NE(cost, nullptr);
  *cost = 1e6;
  const synth::Synthesis s = synth::synthesize_dot(plan, plan.groups[0], m, {});
  EXPECT_NE(s.bids[0].family, "integer rows");
  EXPECT_GT(note_of(s, "integer rows")->cycles, s.bids[0].cycles);
  EXPECT_EQ(m.costs.find("codes.nothing"), nullptr);
}

class ShortLists : public testing::TestWithParam<const char*> {};

TEST_P(ShortLists, GiveTheSameBits) {
  const machine::MachineRef m = machine::find_machine(GetParam());
  std::set<std::string> with_others;
  for (const Product& p :
       {Product{"q4_0", 1, 96, 512}, Product{"fp8_e4m3", 1, 70, 512}, Product{"q8_0", 4, 96, 512},
        Product{"", 64, 96, 128, Scalar::bf16}, Product{"", 70, 96, 128}, Product{"q4_k", 40, 64, 256}}) {
    const graph::Plan plan = plan_of(p);
    std::mt19937 random(3);
    std::map<std::string, graph::Tensor> inputs;
    for (const ValueId v : plan.graph.inputs())
      inputs[plan.graph[v].attributes.name] = dot_test::random_tensor(plan.graph[v].type, random);
    std::map<std::string, dot_test::Bytes> first;  // by family
    for (const auto& [bid, s] : synth::synthesize_bids(plan, plan.groups[0], *m, {}, true)) {
      const dot_test::Bytes got = dot_test::run_evaluated(s, plan, inputs, *m);
      const auto [known, fresh] = first.try_emplace(bid.family, got);
      EXPECT_EQ(got, known->second) << p.format << " " << bid.plan;
      if (!fresh) with_others.insert(bid.family);
    }
  }
  EXPECT_FALSE(with_others.empty());
}
INSTANTIATE_TEST_SUITE_P(Machines, ShortLists, testing::Values("sm_80", "sm_90a", "gfx942", "gfx1030", "gfx1100"));

}  // namespace
}  // namespace lumen
