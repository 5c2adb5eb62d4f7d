// Needs: a chip that LUMEN_STAND_IN_AMD names. A few rows beside streaming weights by matrix instructions, whose
// barrier behind the loop has no wait of its own (docs/guide/amd.md): no access to LDS is under way at a barrier that
// orders it. What they compute is the ladder's matter; here they run on any numbers.
#include <gtest/gtest.h>

#include "tests/amd/gpu_code.h"
#include "tests/ladder/dot_cases.h"

namespace lumen::dot_test {
namespace {

TEST(AmdSkinny, WritesToLdsAreWaitedForBeforeBarriers) {
  test::GpuCode* gpu = test::GpuCode::open();
  if (!gpu) GTEST_SKIP() << "LUMEN_STAND_IN_AMD names no chip";
  int with_matrices = 0;
  for (const char* name : {"q4_0", "q4_k", "int3_g128"}) {
    const FormatRef f = FormatLibrary::builtin().find(name);
    ASSERT_TRUE(f) << name;
    const graph::Graph g = contract_of({5, 2560}, type_of({75, 2560}, f), "mk", "nk", "mn", true);
    const graph::Plan plan = one_dot_group(g);
    for (const synth::Step& step :
         synth::synthesize_dot(plan, plan.groups[0], gpu->machine(), {.exact = false}).steps) {
      std::vector<std::vector<uint8_t>> buffers;
      for (const auto& p : step.kernel.params) buffers.emplace_back(static_cast<size_t>(p.bytes), uint8_t{0x3c});
      std::vector<std::span<uint8_t>> spans(buffers.begin(), buffers.end());
      EXPECT_EQ(gpu->run(step.kernel, spans).code, 0) << step.kernel.name;
      with_matrices += step.kernel.name.find("mma.") != std::string::npos;
    }
  }
  EXPECT_GE(with_matrices, gpu->machine().name == "gfx1201" ? 0 : 2);
}

}  // namespace
}  // namespace lumen::dot_test
