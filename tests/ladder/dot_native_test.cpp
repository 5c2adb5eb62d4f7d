// needs: cpu. Dots as machine code of this processor leave the bytes the evaluator leaves, however tasks are split.
#include <gtest/gtest.h>

#include <tuple>

#include "dot_cases.h"
#include "tests/emit/tile_emulator.h"
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

#if defined(__x86_64__) && defined(__linux__)
// Code for the matrix unit where there is none: all but the unit's own instructions runs as it is.
TEST(DotNative, TilesEqualTheEvaluatorByAnEmulatedUnit) {
  const auto m = machine::find_machine("amx");
  if (machine::runs_here(*m)) GTEST_SKIP() << "the unit itself is tried";
  if (!machine::runs_here(*machine::find_machine("avx512-bf16"))) GTEST_SKIP() << "what is beside the unit cannot run";
  const FormatLibrary library = FormatLibrary::builtin();
  std::vector<dot_test::Case> cases;
  // A tile and several, ends of every index, several stages of K; words of bf16, codes, numbers in memory.
  for (const char* name : {"q4_0", "q4_k", "f16", "fp8_e4m3", "int8_row"})
    for (const auto& [rows, columns, k] : {std::tuple{16, 16, 256}, std::tuple{33, 53, 1536}, std::tuple{70, 96, 512}})
      dot_test::add_cases(cases,
                          dot_test::contract_of({rows, k}, dot_test::type_of({columns, k}, library.find(name)), "mk",
                                                "nk", "mn", rows == 33),
                          *m, false);
  graph::Type w = dot_test::type_of({53, 71});
  w.element.scalar = Scalar::bf16;
  dot_test::add_cases(cases, dot_test::contract_of({40, 71}, w, "mk", "nk", "mn", false), *m, true);
  const emit::TileEmulator emulator;
  size_t by_tiles = 0;
  for (const dot_test::Case& c : cases) {
    const int64_t before = emit::TileEmulator::executed();
    EXPECT_EQ(dot_test::run_native(c, *m, 3), c.after) << c.kernel.name;
    if (emit::TileEmulator::executed() > before) ++by_tiles;
  }
  EXPECT_GE(by_tiles, 10U);
}
#endif

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
