// Needs: none. Attention that streams its panels (instructions that read shared memory) against the graph evaluator:
// several tiles with and without a mask, windows, masks that begin anywhere, ragged ends, heads that share keys, parts
// of the keys, operands that lie in memory as they are wanted, rounded by the graph before any kernel.
#include "kernel/synth/attention/gpu/attend_block.h"
#include "tests/kernel/synth/attention/attend_cases.h"

namespace lumen::test {
namespace {

void attention(const AttentionCase& c, int64_t limit, Scalar products = Scalar::bf16) {
  const G t = attention_graph(c);
  Check wanted{.tolerance = 2e-2, .limits = {{"start", limit}}};
  wanted.machines = {"sm_90a"};
  wanted.options.products = products;
  int found = 0;
  for (const std::string& p : check(t.g, wanted)) found += p.find("pipelined") != std::string::npos;
  EXPECT_EQ(found, 1);
}

TEST(SynthAttendStream, TilesBesideTheMask) {
  attention({.queries = 70, .keys = 200, .depth = 16}, 130);
  attention({.queries = 64, .keys = 330, .depth = 16, .window = 100}, 250);
  attention({.queries = 64, .keys = 128, .depth = 16, .bias = true}, 64);
}

// Two groups of lanes for each block, which machines take where there are many blocks.
void turns(const AttentionCase& c, int64_t limit, Scalar products = Scalar::bf16,
           const std::map<std::string, std::vector<double>>& given = {}) {
  const G t = attention_graph(c);
  Check wanted{.tolerance = 2e-2, .limits = {{"start", limit}}};
  wanted.machines = {"sm_90a"};
  wanted.options.products = products;
  wanted.given = given;
  wanted.synthesize = [](const graph::Plan& plan, const graph::Group& group, const machine::Machine& m,
                         const synth::Options& o) {
    if (group.shape != graph::KernelShape::attend) return synth::synthesize(plan, group, m, o);
    return *synth::attend_by_blocks(plan, group, m, o.products, {.blocks = 1, .width = 1});
  };
  int found = 0;
  for (const std::string& p : check(t.g, wanted))
    found += p.find("128x128 by 8x1 waves, pipelined") != std::string::npos;
  EXPECT_EQ(found, 1);
}

TEST(SynthAttendStream, GroupsTakeTurns) {
  turns({.queries = 130, .keys = 420, .depth = 16}, 290);
  turns({.queries = 64, .keys = 530, .depth = 16, .window = 200}, 460);
  turns({.queries = 64, .keys = 192, .depth = 16, .bias = true}, 64);
  turns({.batch = 2, .queries = 33, .keys = 65, .groups = 1, .repeat = 2, .depth = 24, .width = 72}, 33, Scalar::f16);
  turns({.queries = 40, .keys = 130, .depth = 16, .window = 4}, 160);
}

// Maxima of tiles that grow beyond what probabilities may become without sums being multiplied, and some that fall.
TEST(SynthAttendStream, MaximaGrow) {
  constexpr int64_t kKeys = 700, kDepth = 16;
  std::vector<double> q(64 * kDepth, 0), k(kKeys * kDepth, 0);
  for (int64_t i = 0; i < 64; ++i) q[static_cast<size_t>(i * kDepth)] = i % 3 == 0 ? -4 : 4;
  for (int64_t i = 0; i < kKeys; ++i) k[static_cast<size_t>(i * kDepth)] = static_cast<double>(i / 8) * 0.5;
  const std::map<std::string, std::vector<double>> given{{"q", q}, {"k", k}};
  turns({.queries = 64, .keys = kKeys, .depth = kDepth}, 640, Scalar::bf16, given);
}

TEST(SynthAttendStream, RowsThatSeeNothingSeeAll) {
  attention({.queries = 40, .keys = 130, .depth = 16, .window = 4}, 160);
}

TEST(SynthAttendStream, HeadsAndSizes) {
  attention({.batch = 2, .queries = 33, .keys = 65, .groups = 1, .repeat = 2, .depth = 24, .width = 72}, 33);
  attention({.queries = 33, .keys = 33, .depth = 64, .width = 256}, 1, Scalar::f16);
}

TEST(SynthAttendStream, FewBlocksTakePartsOfTheKeys) {
  attention({.queries = 34, .keys = 600, .depth = 16}, 560);
}

void gradient(int64_t batch, int64_t length, int64_t groups, int64_t repeat, int64_t depth, int64_t width,
              const std::string& machine = "sm_90a", const std::string& says = "pipelined", int kernels = 3) {
  const G t = gradient_graph(batch, length, groups, repeat, depth, width);
  Check wanted{.tolerance = 4e-2};
  wanted.machines = {machine};
  wanted.options.products = Scalar::bf16;
  int found = 0;
  for (const std::string& p : check(t.g, wanted)) found += p.find(says) != std::string::npos;
  EXPECT_EQ(found, kernels) << machine;
}

TEST(SynthAttendStream, Gradient) {
  gradient(1, 128, 1, 2, 16, 16);
  gradient(1, 67, 1, 1, 24, 72);
}

// Lanes that load together, tiles of the same heads' keys and rows copied meanwhile: both kernels of the gradient.
TEST(SynthAttendStream, GradientOfCopiedPanels) {
  gradient(1, 96, 1, 2, 64, 64, "sm_80", "copied panels", 2);
  gradient(1, 67, 1, 1, 64, 64, "sm_89", "copied panels", 2);
  gradient(1, 34, 1, 1, 128, 64, "sm_80", "copied panels", 2);
  gradient(1, 67, 1, 1, 24, 72, "sm_80", "copied panels", 0);  // lines are not whole runs
}

// Operands that the graph rounds are those that kernels round: the same bits, and nothing left to lay out.
void same_bits(const graph::Graph& plain, const std::string& machine, bool lays) {
  graph::Graph rounded = plain;
  graph::round_products(rounded, Scalar::bf16);
  graph::simplify(rounded);
  auto inputs = random_inputs(plain, {.limits = {{"start", 1}}});
  if (inputs.contains("weight"))  // the gradient that sums of the scores' gradient read, too
    for (double& x : inputs["weight"].values) x = bf16_to_f32(f32_to_bf16(static_cast<float>(x)));
  const auto m = machine::find_machine(machine);
  const auto run = [&](const graph::Graph& g) {
    return run_plan(graph::fuse(g), inputs, *m, loop_evaluator(*m), {.products = Scalar::bf16});
  };
  const PlanRun want = run(plain), got = run(rounded);
  for (size_t r = 0; r < want.results.size(); ++r) EXPECT_EQ(got.results[r].values, want.results[r].values) << machine;
  const auto prepares = [](const PlanRun& x) {
    return std::count_if(x.plans.begin(), x.plans.end(), [](const std::string& p) {
      return p.find("prepare attend") != std::string::npos && p.find("reciprocals") == std::string::npos;
    });
  };
  EXPECT_EQ(prepares(want) > 0, lays) << machine;
  EXPECT_EQ(prepares(got), 0) << machine;
}

TEST(SynthAttendStream, OperandsTheGraphRoundsGiveTheSameBits) {
  for (const char* machine : {"sm_90a", "sm_80", "gfx942"}) {
    const bool lays = machine == std::string("sm_90a"), lays_gradient = machine != std::string("gfx942");
    same_bits(attention_graph({.queries = 34, .keys = 70, .groups = 1, .repeat = 1, .depth = 64, .width = 64}).g,
              machine, lays);
    same_bits(gradient_graph(1, 34, 1, 1, 64, 64).g, machine, lays_gradient);
  }
}

// What only a rounding reads is written rounded, by the same kernel.
TEST(SynthAttendStream, ResultsAreRoundedWhereTheyAreWritten) {
  for (const int64_t queries : {int64_t{40}, int64_t{1}}) {  // one query: in parts of the keys
    const int64_t keys = queries == 1 ? 600 : 90;
    G t = attention_graph({.queries = queries, .keys = keys, .depth = 16, .width = 24});
    Formula round;
    round.inputs = {Scalar::f32};
    round.outputs = {round.convert(ScalarOp::cast_, Scalar::bf16, round.input(0))};
    const graph::ValueId o = t.g.results[0];
    t.g.results[0] = t.b.map(round, {o});
    ASSERT_EQ(graph::fuse(t.g).groups.size(), 1U);
    Check wanted{.tolerance = 3e-2, .limits = {{"start", keys - queries}}};
    wanted.machines = {"sm_90a", "sm_80", "gfx942", "avx512"};
    wanted.options.products = Scalar::bf16;
    check(t.g, wanted);
    t.out(o);  // read by others, too: two kernels
    EXPECT_EQ(graph::fuse(t.g).groups.size(), 2U);
    check(t.g, wanted);
  }
}

}  // namespace
}  // namespace lumen::test
