// needs: cpu. Dots as machine code of this processor leave the bytes the evaluator leaves, however tasks are split.
#include <gtest/gtest.h>

#include "dot_cases.h"
#include "tests/verified.h"

namespace lumen {
namespace {

TEST(DotNative, EqualsTheEvaluatorForAnySplit) {
  int ran = 0;
  for (const char* name :
       {"x86-64-v3", "avx-vnni", "avx512", "avx512-vnni", "avx512-vbmi", "avx512-bf16", "amx", "neon-dotprod"}) {
    const auto m = machine::find_machine(name);
    if (!machine::runs_here(*m)) continue;
    for (const dot_test::Case& c : dot_test::dot_cases(*m)) {
      ++ran;
      EXPECT_EQ(dot_test::run_native(c, *m, 1), c.after) << name << " " << c.kernel.name;
      EXPECT_EQ(dot_test::run_native(c, *m, 3), c.after) << name << " split " << c.kernel.name;
    }
    test::verified(m->name, "dot", "hardware");
  }
  if (ran == 0) GTEST_SKIP() << "no machine of the table runs here";
}

}  // namespace
}  // namespace lumen
