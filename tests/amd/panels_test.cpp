// Needs: a chip that LUMEN_STAND_IN_AMD names. Products of large matrices by matrix instructions, with the tiles that
// they get at 8192^3: right sums, and lanes that read and write panels in LDS without meeting in a bank.
#include <gtest/gtest.h>

#include <cmath>

#include "kernel/synth/gemm/gpu/dot_block.h"
#include "tests/amd/fault.h"
#include "tests/amd/gpu_code.h"
#include "tests/graph/matrix_product.h"
#include "tests/kernel/synth/gemm/dot_harness.h"

namespace lumen::dot_test {
namespace {

// The plan of 8192^3 for one tile of it, and a part of K.
synth::BlockDot one_tile(const machine::Machine& m, Scalar s, graph::Graph* small) {
  constexpr int64_t kLarge = 8192;
  const graph::Plan large = one_dot_group(graph::matrix_product(kLarge, kLarge, kLarge, s));
  const auto wanted = synth::choose_block_dots(synth::normalise_dot(large, large.groups[0]), m, true, 0);
  LUMEN_CHECK(!wanted.empty(), "no blocks on {}", m.name);
  synth::BlockPlan t = wanted.front().plan;
  t.m_tiles = t.n_tiles = t.splits = 1;
  t.stages = t.split_stages = t.per_k = 3;
  *small = graph::matrix_product(t.tile.m(), t.tile.n(), t.stages * t.tile.stage_k, s);
  const graph::Plan plan = one_dot_group(*small);
  const synth::DotProblem p = synth::normalise_dot(plan, plan.groups[0]);
  return {p, p, t, {}, 0};
}

std::vector<double> run_counting(test::GpuCode& gpu, const synth::Synthesis& s, const graph::Plan& plan,
                                 const std::map<std::string, graph::Tensor>& inputs) {
  Memory memory(s, plan, inputs);
  const synth::Step& step = s.steps.at(0);
  std::vector<std::span<uint8_t>> buffers;
  for (const synth::Argument& a : step.arguments) buffers.emplace_back(memory.of(a));
  gpu.chip().count_banks();
  EXPECT_EQ(gpu.run(step.kernel, buffers).code, 0);
  const std::vector<float> x = floats_of(memory.value(plan.groups[0].results[0]));
  return {x.begin(), x.end()};
}

class AmdPanels : public ::testing::TestWithParam<Scalar> {};

TEST_P(AmdPanels, LargeTilesAreRightAndMeetInNoBank) {
  const char* chip = std::getenv("LUMEN_STAND_IN_AMD");
  if (!chip || !amd::find_chip(chip)) GTEST_SKIP() << "LUMEN_STAND_IN_AMD names no chip";
  test::GpuCode gpu(*amd::find_chip(chip));
  const Scalar s = GetParam();
  graph::Graph g;
  const synth::BlockDot d = one_tile(gpu.machine(), s, &g);
  if (!d.plan.tile.row) GTEST_SKIP() << "no matrix instruction";
  synth::Synthesis out;
  synth::write_block_dot(g, d, gpu.machine(), out);
  ASSERT_EQ(out.steps.size(), 1U);
  const loop::Kernel& kernel = out.steps[0].kernel;
  SCOPED_TRACE(out.steps[0].plan);
  std::mt19937 random(7);
  std::map<std::string, graph::Tensor> inputs;
  for (const graph::ValueId v : g.inputs()) inputs[g[v].attributes.name] = random_tensor(g[v].type, random);
  const std::vector<double> got = run_counting(gpu, out, one_dot_group(g), inputs);
  const auto &x = inputs.at("x").values, &y = inputs.at("y").values;
  const int64_t m = d.plan.tile.m(), n = d.plan.tile.n(), k = d.plan.stages * d.plan.tile.stage_k;
  ASSERT_EQ(std::ssize(got), m * n);
  for (int64_t i = 0; i < m; ++i)
    for (int64_t j = 0; j < n; ++j) {
      double sum = 0, size = 1;
      for (int64_t c = 0; c < k; ++c) {
        const double product = double{x[i * k + c]} * y[j * k + c];
        sum += product, size += std::abs(product);
      }
      ASSERT_NEAR(got[i * n + j], sum, s == Scalar::i8 ? 0 : 1e-6 * size) << i << ' ' << j;
    }
  EXPECT_GT(gpu.chip().lds_cycles().least, 0U);
  EXPECT_EQ(gpu.chip().lds_cycles().all, gpu.chip().lds_cycles().least) << kernel.name;
}

// What lanes copy together has come for all of them before one reads it: without the waits the chip's rules are broken.
TEST_P(AmdPanels, CopiesOfLanesTogetherAreWaitedFor) {
  const char* chip = std::getenv("LUMEN_STAND_IN_AMD");
  if (!chip || !amd::find_chip(chip)) GTEST_SKIP() << "LUMEN_STAND_IN_AMD names no chip";
  test::GpuCode gpu(*amd::find_chip(chip));
  graph::Graph g;
  const synth::BlockDot d = one_tile(gpu.machine(), GetParam(), &g);
  if (GetParam() != Scalar::i8) {  // whose operands of two steps may take too many registers
    EXPECT_EQ(d.plan.tile.whole_rows, gpu.machine().together_bytes == synth::BlockProduct::kUnit);
  }
  if (!d.plan.tile.whole_rows) GTEST_SKIP() << "lanes copy for themselves";
  synth::Synthesis out;
  synth::write_block_dot(g, d, gpu.machine(), out);
  std::map<std::string, graph::Tensor> inputs;
  std::mt19937 random(7);
  for (const graph::ValueId v : g.inputs()) inputs[g[v].attributes.name] = random_tensor(g[v].type, random);
  gpu.chip().plant("unloaded s_waitcnt");
  try {
    run_counting(gpu, out, one_dot_group(g), inputs);
    ADD_FAILURE() << "the waits are gone and nobody says so";
  } catch (const amd::Fault& f) {
    EXPECT_NE(std::string(f.what()).find("LDS"), std::string::npos) << f.what();
  }
  EXPECT_GE(gpu.chip().planted(), 2U);
}

INSTANTIATE_TEST_SUITE_P(Factors, AmdPanels, ::testing::Values(Scalar::bf16, Scalar::f16, Scalar::i8),
                         [](const auto& of) { return std::string(scalar_name(of.param)); });

}  // namespace
}  // namespace lumen::dot_test
