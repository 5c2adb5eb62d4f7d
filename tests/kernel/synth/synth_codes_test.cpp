// Needs: none. Codes of a map's values, as they lie, transposed and both, against the graph evaluator: squares, odd
// sizes, 16-bit floats, formats of both spellings.
#include <limits>
#include <utility>

#include "tests/kernel/synth/codes_cases.h"

namespace lumen::test {
namespace {

using graph::ValueId;

void run(const CodesCase& c, bool squares) {
  const G t = codes_graph(c);
  const graph::Plan plan = graph::fuse(t.g);
  EXPECT_EQ(plan.groups.size(), 1U) << graph::print(plan.graph);
  for (const std::string& p : check(t.g, {.tolerance = 0, .machines = {"x86-64-v3", "avx512", "sm_90a", "gfx942"}})) {
    EXPECT_EQ(p.rfind("codes", 0), 0U) << p;
    EXPECT_EQ(p.find("in squares") != std::string::npos, squares) << p;
  }
}

TEST(SynthCodes, BothWaysInSquares) {
  for (const CodesCase& c : codes_in_squares()) run(c, true);
}

TEST(SynthCodes, OtherSizes) {
  for (const CodesCase& c : codes_in_lines()) run(c, false);
}

// Scales are found by reductions, and one kernel writes what a matrix is both ways.
TEST(SynthCodes, UnderScales) {
  for (const CodesCase& c : codes_under_scales()) {
    const G t = scaled_codes_graph(c);
    const std::vector<std::string> plans = check(t.g, {.tolerance = 0, .machines = {"x86-64-v3", "sm_90a", "gfx942"}});
    EXPECT_TRUE(any_contains(plans, "codes")) << c.format;
    EXPECT_FALSE(any_contains(plans, "encode")) << c.format;
    const bool in_squares = !c.matrix.empty() && c.matrix[0] % 16 == 0;
    EXPECT_EQ(any_contains(plans, "transposed in squares"), in_squares) << c.format;
    const bool of_tiles = format_named(c.format)->tile_bytes > 0;  // one kernel where lanes form waves
    EXPECT_EQ(any_contains(plans, "fitted in squares of 128"), of_tiles) << c.format;
    EXPECT_EQ(any_contains(plans, "reduce"), true) << c.format;
    const bool of_rows = format_named(c.format)->row_bytes > 0;  // the tensor's scale needs no kernel
    EXPECT_EQ(any_contains(plans, "fields"), of_rows || of_tiles) << c.format;
  }
}

// One kernel encodes and finds the largest number's parts, and a small one behind that of all.
TEST(SynthCodes, WithTheLargest) {
  for (const ExtremeCase& c : codes_with_extremes()) {
    const G t = extreme_codes_graph(c);
    const graph::Plan plan = graph::fuse(t.g);
    EXPECT_EQ(plan.groups.size(), 1U) << graph::print(plan.graph);
    const std::vector<std::string> machines = {"x86-64-v3", "avx512", "sm_80", "sm_90a", "gfx942", "gfx1100"};
    const std::vector<std::string> plans = check(t.g, {.tolerance = 0, .machines = machines});
    size_t codes = 0;
    for (const std::string& p : plans) {
      codes += p.find(" and extremes") != std::string::npos ? 1 : 0;
      EXPECT_TRUE(p.rfind("codes", 0) == 0 || p.rfind("reduce", 0) == 0 || p.rfind("map", 0) == 0) << p;
    }
    EXPECT_EQ(codes, machines.size());
    EXPECT_EQ(any_contains(plans, "in squares and extremes"), c.in_blocks || c.codes.shape[0] == 16);
  }
}

// Maps below codes whose scales of tiles the kernel finds: in it where lanes form waves, before it elsewhere.
TEST(SynthCodes, FittedBehindMaps) {
  for (const char* format : {"fp8_1x128_p2", "fp8_tile"}) {
    G t;
    const auto in = [&](const char* name) { return t.b.convert(t.in(name, {128, 256}, Scalar::bf16), Scalar::f32); };
    const graph::ValueId x = t.b.convert(t.b.mul(in("x"), in("y")), Scalar::bf16);
    const graph::ValueId wide = t.b.convert(x, Scalar::f32);
    const graph::Element codes{Scalar::f32, format_named(format)};
    t.out(t.b.cast(wide, codes));
    t.out(t.b.cast(t.b.permute(wide, {1, 0}), codes));
    EXPECT_EQ(graph::fuse(t.g).groups.size(), 1U) << format;
    check(t.g, {.tolerance = 0, .machines = {"x86-64-v3", "sm_90a", "gfx942"}});
  }
}

// What is no number is passed over, first or last.
TEST(SynthCodes, TheLargestPassesOverNoNumbers) {
  for (const auto& [first, last] : {std::pair{0, 7}, std::pair{64 * 128 - 1, 128}}) {
    std::vector<double> x(64 * 128, 0.5);
    x[first] = x[last] = std::numeric_limits<double>::quiet_NaN();
    x[129] = -3;
    const G t = extreme_codes_graph({{{64, 128}, {64, 128}, true, "fp8_e4m3", Scalar::bf16}});
    check(t.g, {.tolerance = 0, .machines = {"x86-64-v3", "sm_90a", "gfx942"}, .given = {{"x", x}}});
  }
}

// The numbers' largest is what their scale is made of, or is wanted beside sums: reductions of their own.
TEST(SynthCodes, ExtremesOfBefore) {
  G t;
  const graph::ValueId x = t.b.convert(t.in("x", {64, 128}, Scalar::bf16), Scalar::f32);
  const graph::ValueId most = t.b.reduce(t.b.unary(ScalarOp::abs_, x), graph::Reduction::max, {0, 1});
  t.out(t.b.cast(t.b.div(x, most), {Scalar::f32, format_named("fp8_e4m3")}));
  EXPECT_GT(graph::fuse(t.g).groups.size(), 1U);
  check(t.g, {.tolerance = 0, .machines = {"x86-64-v3", "sm_90a"}});
}

// Something else reads the map, or a cast is of another matrix: it is in memory, and every cast has a kernel.
TEST(SynthCodes, MapsThatAreReadElsewhereStay) {
  G t;
  const graph::Element codes{Scalar::f32, format_named("fp8_e4m3")};
  const ValueId twice = t.b.mul(t.in("x", {32, 16}), t.b.scalar(2)), more = t.b.mul(t.in("y", {32, 16}), t.b.scalar(2));
  t.out(t.b.cast(twice, codes));
  t.out(twice);
  t.out(t.b.cast(t.b.permute(more, {1, 0}), codes));
  t.out(t.b.cast(t.b.permute(t.b.reshape(more, G::shape({64, 8})), {1, 0}), codes));
  EXPECT_EQ(graph::fuse(t.g).groups.size(), 5U);
  check(t.g, {.tolerance = 0, .machines = {"x86-64-v3", "sm_90a"}});
}

}  // namespace
}  // namespace lumen::test
