// Needs: none. Attention by blocks of lanes against the graph evaluator: machines with waves of 32 and 64, with every
// kind of matrix instruction and without, masks that hide whole tiles, heads that share keys, odd sizes, keys in
// formats. The evaluator of loops ends the run where a barrier is missing.
#include "tests/kernel/synth/attention/attend_cases.h"

namespace lumen::test {
namespace {

struct How {
  std::string machine;
  Scalar products = Scalar::f32;
  std::string says;  // the plan
};

// Matrix instructions of three layouts, sums in rows and in columns; f32 ones; none.
const std::vector<How> kAll = {{"sm_80", Scalar::bf16, "mma.16x8x16"}, {"gfx1100", Scalar::bf16, "mma.16x16x16"},
                               {"gfx942", Scalar::bf16, "bf16bf16"},   {"gfx1201", Scalar::f16, "f16f16"},
                               {"gfx908", Scalar::f32, "f32f32"},      {"sm_90a", Scalar::f32, "fma"},
                               {"gfx906", Scalar::bf16, "fma"}};

void expect_blocks(const std::vector<std::string>& plans, const How& how) {
  int found = 0;
  for (const std::string& p : plans)
    if (p.starts_with("attend") && !p.starts_with("attend merge")) {
      EXPECT_NE(p.find("by blocks"), std::string::npos) << p;
      EXPECT_NE(p.find(how.says), std::string::npos) << p;
      ++found;
    }
  EXPECT_GT(found, 0);
}

void attention(const AttentionCase& c, const std::vector<How>& machines, int64_t limit = 0) {
  const G t = attention_graph(c);
  for (const How& how : machines) {
    SCOPED_TRACE(how.machine);
    Check wanted{.tolerance = how.products == Scalar::f32 ? 1e-5 : 2e-2,
                 .limits = {{"start", limit > 0 ? limit : c.keys}}};
    wanted.machines = {how.machine};
    wanted.options.products = how.products;
    expect_blocks(check(t.g, wanted), how);
  }
}

TEST(SynthAttendBlock, EveryKindOfInstruction) {
  attention({.batch = 1, .queries = 20, .keys = 37, .groups = 1, .repeat = 2, .depth = 24, .width = 20}, kAll);
}

TEST(SynthAttendBlock, TilesThatTheMaskHidesAreSkipped) {
  const std::vector<How> two{{"sm_89", Scalar::bf16, "mma"}, {"gfx90a", Scalar::f32, "f32"}};
  attention({.queries = 70, .keys = 150, .depth = 16}, two, 5);
  attention({.queries = 70, .keys = 300, .depth = 16, .window = 30}, two, 5);
  attention({.queries = 9, .keys = 33, .depth = 16, .window = 4}, two, 60);  // rows that see no key see all of them
}

// Groups of lanes share rows, blocks share keys.
void gradient(int64_t batch, int64_t length, int64_t groups, int64_t repeat, int64_t depth, int64_t width,
              const std::vector<How>& machines) {
  const G t = gradient_graph(batch, length, groups, repeat, depth, width);
  for (const How& how : machines) {
    SCOPED_TRACE(how.machine);
    Check wanted{.tolerance = how.products == Scalar::f32 ? 1e-5 : 4e-2};
    wanted.machines = {how.machine};
    wanted.options.products = how.products;
    const std::vector<std::string> plans = check(t.g, wanted);
    expect_blocks(plans, how);
  }
}

// Instructions that read shared memory, values as they lie.
TEST(SynthAttendBlock, FactorsInSharedMemory) {
  const std::vector<How> hopper{{"sm_90a", Scalar::bf16, "product.64x64"}};
  attention({.queries = 61, .keys = 100, .groups = 1, .depth = 24, .width = 40},
            {{"sm_90a", Scalar::f16, "product.64x64"}});
  attention({.queries = 64, .keys = 70, .depth = 80, .width = 128, .bias = true}, hopper);
  gradient(1, 61, 1, 2, 20, 56, hopper);
}

TEST(SynthAttendBlock, FewRowsSplitTheirKeys) {
  attention({.queries = 1, .keys = 600, .groups = 2, .repeat = 4, .depth = 16}, kAll, 600);
  // Parts without keys, and more parts than are joined at once.
  attention({.queries = 1, .keys = 600, .groups = 2, .repeat = 4, .depth = 16}, kAll, 5);
  const std::vector<How> long_cache{{"sm_89", Scalar::bf16, "mma"}, {"sm_90a", Scalar::bf16, "by blocks"}};
  attention({.queries = 1, .keys = 1300, .groups = 1, .repeat = 4, .depth = 16}, long_cache, 5);
  attention({.queries = 1, .keys = 1300, .groups = 1, .repeat = 4, .depth = 16}, long_cache, 1100);
  attention({.queries = 1, .keys = 1300, .groups = 1, .repeat = 4, .depth = 16}, long_cache, 1300);
  attention({.batch = 2, .queries = 1, .keys = 777, .groups = 1, .repeat = 1, .depth = 20, .width = 12},
            {{"sm_89", Scalar::bf16, "mma"}, {"gfx1030", Scalar::f32, "fma"}}, 40);
  attention({.batch = 70, .queries = 1, .keys = 50, .groups = 1, .repeat = 3, .depth = 16},
            {{"gfx950", Scalar::bf16, "bf16"}});
}

TEST(SynthAttendBlock, KeysInFormats) {
  const std::vector<How> two{{"sm_89", Scalar::bf16, "mma"}, {"gfx1030", Scalar::f32, "fma"}};
  attention(
      {.queries = 3, .keys = 21, .groups = 2, .repeat = 2, .depth = 64, .width = 64, .format = format_named("q8_0")},
      two);
  attention({.queries = 2, .keys = 9, .groups = 1, .depth = 24, .width = 40, .format = format_named("f16")}, two);
  attention({.queries = 1, .keys = 530, .depth = 32, .width = 32, .format = format_named("q4_0")}, two, 530);
}

// Nothing is said of products, but caches have no more digits than a 16-bit float.
void held(const AttentionCase& c, const std::string& machine, const std::string& says, bool exact = false) {
  SCOPED_TRACE(machine + " " + c.format->name);
  Check wanted{.tolerance = exact ? 1e-5 : 4e-3, .limits = {{"start", c.keys}}};
  wanted.machines = {machine};
  wanted.options.exact = exact;
  expect_blocks(check(attention_graph(c).g, wanted), {machine, Scalar::f32, says});
}

TEST(SynthAttendBlock, CachesOf16BitsAndLessTakeMatrixInstructions) {
  const AttentionCase one{.keys = 300, .groups = 2, .repeat = 4, .depth = 64, .width = 64};
  const AttentionCase chunk{.queries = 40, .keys = 150, .groups = 1, .repeat = 2, .depth = 64, .width = 64};
  for (AttentionCase c : {one, chunk}) {
    c.format = format_named("f16");
    held(c, "sm_80", "f16f16");
    held(c, "sm_80", "fma", true);
    held(c, "gfx942", "f16f16");
    held(c, "gfx1100", "f16f16");
    c.format = format_named("q8_0");
    held(c, "sm_89", "f16f16");
    c.format = format_named("bf16");
    held(c, "gfx90a", "bf16bf16");
    c.format = format_named("f32");
    held(c, "sm_80", "fma");
  }
  AttentionCase streamed = chunk;
  streamed.format = format_named("f16");
  held(streamed, "sm_90a", "f16f16.f32 64x64 by 4x1 waves, pipelined");
}

TEST(SynthAttendBlock, HeadSizesOfModels) {
  for (const int64_t size : {64, 80, 96, 128, 256})
    attention({.queries = 33, .keys = 40, .depth = size, .width = size, .bias = true},
              {{"sm_80", Scalar::bf16, "mma"}, {"gfx942", Scalar::bf16, "bf16"}, {"gfx906", Scalar::f32, "fma"}});
  attention({.queries = 17, .keys = 17, .depth = 7, .width = 9, .bias = true}, kAll);
}

TEST(SynthAttendBlock, Gradient) {
  gradient(1, 9, 2, 1, 16, 16, kAll);
  gradient(2, 37, 1, 2, 20, 24,
           {{"sm_89", Scalar::bf16, "mma"}, {"gfx1100", Scalar::bf16, "mma"}, {"gfx906", Scalar::f32, "fma"}});
  gradient(1, 70, 1, 1, 8, 40, {{"gfx942", Scalar::bf16, "mma"}});
  gradient(1, 130, 1, 1, 16, 16, {{"sm_80", Scalar::bf16, "mma"}});
}

}  // namespace
}  // namespace lumen::test
