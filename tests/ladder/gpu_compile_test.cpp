// needs: none. The ladder for GPUs without a card: kernels synthesized for them are right by the loop evaluator, and
// become code that fits the hardware, on one target of each family (tools/gpu_table.py does it for all).
#include <set>

#include "dot_cases.h"
#include "emit/report.h"
#include "graph_cases.h"
#include "kernel/synth/encode/feedback.h"
#include "tests/kernel/synth/attention/attend_cases.h"
#include "tests/kernel/synth/picked_cases.h"

namespace lumen::test {
namespace {

TEST(LadderGpuCompile, KernelsAreRightByTheEvaluator) {
  const std::vector<std::string> machines{"sm_90a", "gfx942"};
  for (uint32_t seed = 1; seed <= 12; ++seed) {
    Check c{.tolerance = 1e-4, .machines = {machines[seed % 2]}};
    c.seed = seed;
    SCOPED_TRACE("seed " + std::to_string(seed));
    check(random_graph(seed).g, c);
  }
  for (const auto& [queries, keys, depth] : kAttentions)
    check(attention(queries, keys, depth).g, {.tolerance = 1e-5, .machines = {"gfx1100"}});
}

// Few rows beside a weight: a wave for a group of its rows, lanes along K; rows and units that do not divide evenly.
TEST(LadderGpuCompile, FewRowsByWaves) {
  const FormatLibrary library = FormatLibrary::builtin();
  int number = 0;
  for (const FormatRef& f : library.all()) {
    if (number++ % 4 != 0) continue;
    const int64_t blocks = std::max<int64_t>(3, 1100 / f->block), rows = number % 3 + 1;
    for (const char* machine : {"sm_90a", "gfx942"}) {
      SCOPED_TRACE(f->name);
      check(dot_test::contract_of({rows, f->block * blocks}, dot_test::type_of({7, f->block * blocks}, f), "mk", "nk",
                                  "mn", false),
            {.tolerance = 1e-4, .machines = {machine}});
    }
  }
  check(dot_test::contract_of({2, 1001}, dot_test::type_of({9, 1001}), "mk", "nk", "mn", false),
        {.tolerance = 1e-4, .machines = {"sm_90a", "gfx942"}});
}

// Rows that pick matrices: one by one, and sorted.
TEST(LadderGpuCompile, ExpertsAreRightByTheEvaluator) {
  for (const int64_t rows : {1, 14}) {
    SCOPED_TRACE(rows);
    check_experts({.rows = rows, .wide = 9, .deep = 70}, {.tolerance = 1e-4, .machines = {"sm_90a", "gfx942"}});
  }
  for (const int64_t rows : {1, 5, 19}) {
    const Experts e{.rows = rows, .wide = 32, .deep = 64, .format = format_named("q4_0")};
    check(second_of_experts(e).g,
          {.tolerance = 0.4, .limits = {{"picks", 4}}, .machines = {"sm_90a", "gfx942"}, .options = {}});
  }
  check_experts({.rows = 7, .wide = 32, .deep = 64, .format = format_named("q4_0")},
                {.tolerance = 1e-4, .machines = {"gfx942"}});
}

TEST(LadderGpuCompile, FormatsAreRightByTheEvaluator) {
  const machine::MachineRef m = machine::find_machine("gfx942");
  std::mt19937 random(5);
  for (const FormatRef& f : FormatLibrary::builtin().all()) {
    if (!f->encodes()) continue;
    const int64_t rows = 2, columns = f->block * (f->block < 64 ? 64 / f->block + 1 : 1);
    Blob x(static_cast<size_t>(rows * columns * 4));
    std::vector<float> numbers;
    std::normal_distribution<float> normal(0, 1);
    for (int64_t i = 0; i < rows * columns; ++i) numbers.push_back(normal(random));
    std::memcpy(x.data(), numbers.data(), x.size());
    const Blob want = encode(*f, numbers, rows, columns);
    Blob got(want.size(), 0xcd);
    const synth::Synthesis s = synth::synthesize_encode(*f, rows, columns, *m);
    for (const synth::Step& step : s.steps) {
      std::vector<std::span<uint8_t>> spans;
      for (const synth::Argument& a : step.arguments) spans.emplace_back(a.index == 0 ? x : got);
      loop_evaluator (*m)(step.kernel, spans);
    }
    EXPECT_EQ(got, want) << f->name;
  }
}

// All kernels of some graphs, contractions and formats.
std::vector<loop::Kernel> kernels_for(const machine::Machine& m) {
  std::vector<loop::Kernel> out;
  std::set<std::string> seen;
  const auto add = [&](const synth::Synthesis& s) {
    for (const synth::Step& step : s.steps)
      if (seen.insert(emit::symbol_name(step.kernel)).second) out.push_back(step.kernel);
  };
  const auto add_graph = [&](const graph::Graph& g) {
    const graph::Plan plan = graph::fuse(g);
    for (const graph::Group& group : plan.groups) add(synth::synthesize(plan, group, m));
  };
  for (uint32_t seed = 1; seed <= 2; ++seed) add_graph(random_graph(seed).g);
  add_graph(attention(5, 17, 24).g);
  add_graph(first_of_experts({}).g);
  add_graph(weight_gradient({}).g);
  int number = 0;
  for (const FormatRef& f : FormatLibrary::builtin().all()) {
    if (f->encodes() && number % 16 == 3) add(synth::synthesize_encode(*f, 2, f->block * 2, m));
    if (f->encodes() && number % 16 == 7) {
      const int64_t columns = f->block * 512, panel = synth::feedback_panel(*f, columns);
      for (const auto order : {synth::FeedbackOrder::columns, synth::FeedbackOrder::given})
        if (order == synth::FeedbackOrder::columns || synth::rounds_with_stored_fields(*f))
          add(synth::synthesize_feedback(*f, {64, columns, panel, order, f->weighs()}, m));
    }
    if (number % 10 == 0) add(synth::synthesize_decode(*f, 2, f->block * 2, m));
    if (number++ % 12 != 1) continue;
    for (const int64_t rows : {1, 16, 40}) {  // one, few and many rows beside a weight in the format
      const int64_t k = f->block * std::max<int64_t>(4, 8192 / f->block);
      add_graph(dot_test::contract_of({rows, k}, dot_test::type_of({24, k}, f), "mk", "nk", "mn", false));
    }
  }
  return out;
}

TEST(LadderGpuCompile, CodeFitsTheHardware) {
  for (const char* name : {"gfx1201", "sm_90a"}) {
    const machine::MachineRef m = machine::find_machine(name);
    const std::vector<loop::Kernel> kernels = kernels_for(*m);
    ASSERT_GT(kernels.size(), 20U);
    int dots = 0;
    for (const emit::KernelReport& r : emit::report(kernels, *m)) {
      SCOPED_TRACE(m->name + " " + r.symbol);
      EXPECT_LE(r.shared_bytes, m->shared_bytes);
      EXPECT_LE(r.private_bytes, 128 << 10);
      EXPECT_LE(r.launch.threads, 1024);
      dots += r.loop_dots > 0;
      if (r.vector_registers) {
        EXPECT_LE(*r.vector_registers, 512);
        EXPECT_GE(r.waves.value_or(0), 1);
      }
    }
    EXPECT_GT(dots, 0) << name;
  }
}

struct Planned {
  std::vector<loop::Kernel> kernels;
  std::vector<std::string> plans;
};

// Attention as training wants it, with its gradient, for one new position of a long text, and for a prompt whose keys
// a table finds.
Planned attentions_for(const machine::Machine& m, int64_t size, Scalar products) {
  Planned out;
  synth::Options options;
  options.products = products;
  const AttentionCase decode{.queries = 1, .keys = 4096, .groups = 4, .depth = size, .width = size};
  const TableCase paged{
      .texts = 2, .queries = 256, .keys = 1024, .places = 4096, .groups = 4, .repeat = 2, .depth = size};
  for (const G& t : {gradient_graph(2, 1024, 4, 2, size, size), attention_graph(decode), table_graph(paged)}) {
    const graph::Plan plan = graph::fuse(t.g);
    for (const graph::Group& group : plan.groups)
      for (synth::Step& step : synth::synthesize(plan, group, m, options).steps) {
        if (!step.plan.starts_with("attend") || step.plan.starts_with("attend merge")) continue;
        EXPECT_NE(step.plan.find("by blocks"), std::string::npos) << m.name << " " << step.plan;
        step.kernel.name += "_" + std::to_string(out.kernels.size());
        out.kernels.push_back(std::move(step.kernel));
        out.plans.push_back(step.plan);
      }
  }
  EXPECT_EQ(out.plans.size(), 5U);
  return out;
}

// No spills, nothing in memory far away, panels within the block's memory, matrix instructions where the plan says so.
void expect_in_registers(const machine::Machine& m, const Planned& planned, bool says) {
  const std::vector<emit::KernelReport> reports = emit::report(planned.kernels, m);
  for (size_t i = 0; i < reports.size(); ++i) {
    const emit::KernelReport& r = reports[i];
    const std::string& plan = planned.plans[i];
    SCOPED_TRACE(m.name + " " + plan);
    if (says)
      fmt::print("{:8} vgpr {} spills {} private {} shared {} waves {} loop {}/{} {}x{}: {}\n", m.name,
                 r.vector_registers.value_or(-1), r.vector_spills.value_or(-1), r.private_bytes, r.shared_bytes,
                 r.waves.value_or(-1), r.loop_matrix, r.loop_instructions, r.launch.blocks, r.launch.threads, plan);
    EXPECT_LE(r.shared_bytes, m.shared_bytes);
    EXPECT_EQ(r.private_bytes, 0);
    EXPECT_EQ(r.vector_spills.value_or(0), 0);
    EXPECT_EQ(r.loop_matrix > 0, plan.find("fma") == std::string::npos);
  }
}

// Cards of few units, which choose the largest tiles: what lanes hold of the next stage and of the epilogue leaves the
// sums where they are, for every order of the operands that training has.
TEST(LadderGpuCompile, ProductsOnFewUnitsStayInRegisters) {
  const char* const orders[][2] = {{"mk", "nk"}, {"mk", "kn"}, {"km", "kn"}};
  for (const auto& [name, scalar] : {std::pair{"gfx1036", Scalar::f32}, {"gfx1153", Scalar::bf16}}) {
    const machine::MachineRef m = machine::find_machine(name);
    Planned planned;
    for (const auto& [ia, ib] : orders) {
      graph::Graph g;
      graph::Builder build(g);
      const graph::Type type{{graph::Dim(256), graph::Dim(256)}, {scalar, nullptr}};
      const graph::ValueId x = build.input("x", graph::Role::data, type), y = build.input("y", graph::Role::data, type);
      const graph::ValueId product = build.contract(x, y, ia, ib, "mn");
      g.results = {build.add(product, build.input("z", graph::Role::data, build.type(product)))};
      g.result_names = {"r"};
      const graph::Plan plan = dot_test::one_dot_group(g);
      const synth::Synthesis s = synth::synthesize_dot(plan, plan.groups[0], *m, {.exact = false});
      EXPECT_NE(s.steps[0].plan.find("blocks"), std::string::npos) << s.steps[0].plan;
      planned.kernels.push_back(s.steps[0].kernel);
      planned.kernels.back().name += "_" + std::to_string(planned.kernels.size());
      planned.plans.push_back(s.steps[0].plan);
    }
    expect_in_registers(*m, planned, std::getenv("LUMEN_TEST_TARGETS") != nullptr);
  }
}

// LUMEN_TEST_TARGETS=all, or names: these GPUs and every head size, and the figures are printed.
TEST(LadderGpuCompile, AttentionStaysInRegisters) {
  const char* named = std::getenv("LUMEN_TEST_TARGETS");
  const bool all = named != nullptr;
  const std::string wanted = all ? named : "gfx942 gfx1100 sm_90a";
  for (const machine::MachineRef& m : machine::all_machines()) {
    if (m->kind != machine::Kind::gpu || (wanted != "all" && wanted.find(m->name) == std::string::npos)) continue;
    for (const int64_t size : all ? std::vector<int64_t>{64, 80, 128, 256} : std::vector<int64_t>{128})
      for (const Scalar products : {Scalar::f32, Scalar::bf16})
        expect_in_registers(*m, attentions_for(*m, size, products), all);
  }
}

}  // namespace
}  // namespace lumen::test
