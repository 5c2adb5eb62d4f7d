// Needs: a chip that LUMEN_STAND_IN_AMD names. A few rows beside streaming weights by matrix instructions, whose
// barrier behind the loop has no wait of its own (docs/amd.md): no write to LDS is under way at a barrier.
#include <gtest/gtest.h>

#include "dot_cases.h"
#include "tests/amd/gpu_code.h"

namespace lumen::dot_test {
namespace {

TEST(AmdSkinny, WritesToLdsAreWaitedForBeforeBarriers) {
  test::GpuCode* gpu = test::GpuCode::open();
  if (!gpu) GTEST_SKIP() << "LUMEN_STAND_IN_AMD names no chip";
  std::vector<Case> cases;
  for (const char* name : {"q4_0", "q4_k"}) {
    const FormatRef f = FormatLibrary::builtin().find(name);
    ASSERT_TRUE(f) << name;
    add_cases(cases, contract_of({5, 2560}, type_of({75, 2560}, f), "mk", "nk", "mn", true), gpu->machine(), false);
  }
  int with_matrices = 0;
  for (const Case& c : cases) {
    auto got = c.before;
    std::vector<std::span<uint8_t>> spans(got.begin(), got.end());
    EXPECT_EQ(gpu->run(c.kernel, spans).code, 0) << c.kernel.name;
    with_matrices += c.kernel.name.find("mma.") != std::string::npos;
    for (size_t i = 0; i < got.size(); ++i) {
      if (!c.kernel.params[i].written || c.kernel.name.find("mma.") == std::string::npos) continue;
      const std::vector<float> x = floats_of(got[i]), y = floats_of(c.after[i]);
      for (size_t e = 0; e < x.size(); ++e) ASSERT_NEAR(x[e], y[e], 1e-3 * (1 + std::abs(y[e]))) << c.kernel.name;
    }
  }
  EXPECT_GT(with_matrices, 0);
}

}  // namespace
}  // namespace lumen::dot_test
