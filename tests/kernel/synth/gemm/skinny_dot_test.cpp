// needs: none. Few rows beside packed weights that stream through shared memory: every format, machines with waves of
// 32 and 64, sizes that do not divide evenly, every plan the model offers; against sums of the codec's numbers.
#include "kernel/synth/gemm/skinny/skinny_dot.h"

#include <gtest/gtest.h>

#include <cmath>

#include "kernel/loop/verify.h"
#include "kernel/synth/dot.h"
#include "number/library/library.h"
#include "tests/kernel/synth/gemm/dot_harness.h"

namespace lumen {
namespace {

using dot_test::type_of;
using graph::Graph;
using graph::Role;
using graph::ValueId;

Graph product(const FormatRef& f, int64_t rows, int64_t n, int64_t k) {
  Graph g;
  graph::Builder build(g);
  const ValueId a = build.input("x", Role::data, type_of({rows, k}));
  const ValueId w = build.cast(build.input("w", Role::parameter, type_of({n, k}, f)), {Scalar::f32, nullptr});
  g.results = {build.contract(a, w, "mk", "nk", "mn")};
  g.result_names = {"y"};
  return g;
}

// By the evaluator; activations may be rounded to `relative` of the largest of a group.
void expect_product(const synth::Synthesis& s, const graph::Plan& plan, const FormatRef& f, const machine::Machine& m,
                    int64_t rows, int64_t n, int64_t k, double relative) {
  SCOPED_TRACE(f->name + " " + m.name + " " + s.steps.back().plan);
  std::mt19937 random(7);
  std::map<std::string, graph::Tensor> inputs;
  for (ValueId v : plan.graph.inputs())
    inputs[plan.graph[v].attributes.name] = dot_test::random_tensor(plan.graph[v].type, random);
  const std::vector<float> weight = decode(*f, inputs["w"].blob, n, k);
  const std::vector<float> got = dot_test::floats_of(dot_test::run_evaluated(s, plan, inputs, m));
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t c = 0; c < n; ++c) {
      double want = 0, size = 0;
      for (int64_t i = 0; i < k; ++i) {
        const double v = weight[static_cast<size_t>(c * k + i)];
        want += v * inputs["x"].values[static_cast<size_t>(r * k + i)];
        size += std::abs(v);
      }
      ASSERT_NEAR(got[static_cast<size_t>(r * n + c)], want, size * (relative + 2e-6) + 1e-6) << r << "," << c;
    }
}

bool is_skinny_dot(const synth::Synthesis& s) {
  return s.steps.back().plan.find("skinny") != std::string::npos;
}

TEST(SkinnyDot, EveryFormat) {
  const FormatLibrary library = FormatLibrary::builtin();
  int streams = 0, number = 0;
  for (const char* name : {"sm_90a", "gfx942", "gfx1201"}) {
    const auto m = machine::find_machine(name);
    for (const FormatRef& f : library.all()) {
      if (!f->encodes() || ++number % 3 != 0) continue;
      const int64_t k = f->block * std::max<int64_t>(1, 256 / f->block) * 3, rows = number % 2 + 1;
      const Graph g = product(f, rows, 5, k);
      const graph::Plan plan = dot_test::one_dot_group(g);
      const synth::Synthesis s = synth::synthesize_dot(plan, plan.groups[0], *m, {});
      if (!is_skinny_dot(s)) continue;
      ++streams;
      expect_product(s, plan, f, *m, rows, 5, k, 1.0 / 250);
    }
  }
  EXPECT_GE(streams, 30);
}

// Copies of a weight that nothing writes begin before the kernels before have ended; of no other.
TEST(SkinnyDot, EarlyCopies) {
  const FormatLibrary library = FormatLibrary::builtin();
  const auto early = [](const Graph& g, const char* machine) {
    const graph::Plan plan = dot_test::one_dot_group(g);
    const synth::Synthesis s = synth::synthesize_dot(plan, plan.groups[0], *machine::find_machine(machine), {});
    EXPECT_TRUE(is_skinny_dot(s));
    const loop::Kernel& k = s.steps.back().kernel;
    EXPECT_EQ(std::count_if(k.params.begin(), k.params.end(), [](const auto& p) { return p.constant; }),
              loop::begins_early(k) ? 1 : 0);
    return loop::begins_early(k);
  };
  for (const char* format : {"q4_0", "nf4"}) {
    const FormatRef f = library.find(format);
    Graph g = product(f, 1, 75, 1536);
    EXPECT_TRUE(early(g, "sm_90a"));
    EXPECT_TRUE(early(g, "sm_120"));
    EXPECT_FALSE(early(g, "sm_89"));
    EXPECT_FALSE(early(g, "gfx942"));
    for (graph::Node& node : g.nodes)
      if (node.op == graph::Op::input_ && node.attributes.name == "w") node.attributes.role = Role::state;
    EXPECT_TRUE(early(g, "sm_90a"));  // a state that nothing updates
    graph::Builder build(g);
    ValueId w = -1;
    for (const ValueId v : g.inputs())
      if (g[v].attributes.name == "w") w = v;
    build.update(w, w);
    EXPECT_FALSE(early(g, "sm_90a"));
  }
}

// Where instructions bind, a block of the next kernel has room, and waves are shared out evenly; blocks have tiles in
// turn, more than one for a wave.
TEST(SkinnyDot, RoomForTheNextKernel) {
  const FormatLibrary library = FormatLibrary::builtin();
  machine::Machine m = *machine::find_machine("sm_90a");
  for (const char* format : {"nf4", "mxfp4", "int3_g128", "q4_0", "q8_0"}) {
    const FormatRef f = library.find(format);
    const Graph g = product(f, 1, 14336, 4096);
    const graph::Plan plan = dot_test::one_dot_group(g);
    std::string why;
    const auto plans = synth::choose_skinny_dots(synth::normalise_dot(plan, plan.groups[0]), m, false, &why);
    ASSERT_FALSE(plans.empty());
    const bool binds = f->name != "q4_0" && f->name != "q8_0";
    EXPECT_EQ(2 * plans[0].shared_bytes <= m.shared_bytes, binds) << format;
    if (!binds) continue;
    EXPECT_EQ(plans[0].waves % 4, 0) << format;
    EXPECT_EQ(plans[0].blocks, m.units) << format;
  }
  m.units = 2;
  for (const char* format : {"nf4", "int3_g128", "q4_0"}) {
    const FormatRef f = library.find(format);
    const Graph g = product(f, 1, 75, 768);
    const graph::Plan plan = dot_test::one_dot_group(g);
    expect_product(synth::synthesize_dot(plan, plan.groups[0], m, {}), plan, f, m, 1, 75, 768, 1.0 / 250);
  }
}

// Eight bits, four with a bias, three across bytes, nested scales with an offset, tables, small floats, fields of rows.
constexpr const char* kKinds[] = {"q8_0", "q4_0", "int3_g128", "int4_g32_asym", "q4_k",     "q6_k",
                                  "q5_0", "nf4",  "mxfp4",     "fp8_e4m3",      "fp8_e5m2", "iq4_nl"};

TEST(SkinnyDot, EveryPlanOfEveryKind) {
  const FormatLibrary library = FormatLibrary::builtin();
  for (const char* name : {"sm_90a", "gfx906"}) {
    const auto m = machine::find_machine(name);
    for (const char* format : kKinds) {
      const FormatRef f = library.find(format);
      ASSERT_TRUE(f) << format;
      const int64_t k = std::max<int64_t>(1536, f->block * 6), n = 13;
      const Graph g = product(f, 1, n, k);
      const graph::Plan plan = dot_test::one_dot_group(g);
      const synth::DotProblem p = synth::normalise_dot(plan, plan.groups[0]);
      std::string why;
      const auto plans = synth::choose_skinny_dots(p, *m, false, &why);
      EXPECT_FALSE(plans.empty()) << format << " " << name;
      for (size_t i = 0; i < plans.size(); i += 3) {
        synth::Synthesis s;
        s.steps.push_back(synth::write_skinny_dot(g, p, plans[i], *m));
        expect_product(s, plan, f, *m, 1, n, k, plans[i].integers ? 1.0 / 250 : 1.0 / 2000);
      }
    }
  }
}

}  // namespace
}  // namespace lumen
