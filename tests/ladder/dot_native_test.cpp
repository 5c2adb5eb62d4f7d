// needs: cpu. Dots as machine code of this processor leave the bytes the evaluator leaves, however tasks are split.
#include <gtest/gtest.h>

#include <tuple>

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

// What no processor here may run can still be read: bytes of two signs are multiplied by the dot that takes one, four
// at a time, and none of them through words of 16 bits.
TEST(DotNative, CodesAreMultipliedAsBytes) {
  for (const auto& [name, has, has_not] :
       {std::tuple{"avx-vnni", "vpdpbusd", "vpmaddwd"}, std::tuple{"avx512-vnni", "vpdpbusd", "vpmaddwd"},
        std::tuple{"x86-64-v3", "vpmaddwd", "vpmaddubsw"}, std::tuple{"neon-dotprod", "sdot", "smlal"},
        std::tuple{"neon-i8mm", "sdot", "smlal"}}) {
    const auto m = machine::find_machine(name);
    std::vector<dot_test::Case> cases;
    dot_test::add_convolution_cases(cases, *m, Scalar::i8);
    for (const dot_test::Case& c : cases) {
      const std::string text = emit::emit({&c.kernel, 1}, *m, emit::Output::assembly);
      EXPECT_NE(text.find(has), std::string::npos) << name << " " << c.kernel.name;
      EXPECT_EQ(text.find(has_not), std::string::npos) << name << " " << c.kernel.name;
    }
  }
}

}  // namespace
}  // namespace lumen
