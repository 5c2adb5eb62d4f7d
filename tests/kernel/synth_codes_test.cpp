// Needs: none. Codes of a map's values, as they lie, turned and both, against the graph evaluator: squares, odd sizes,
// short floats, formats of both spellings.
#include "synth_harness.h"

namespace lumen::test {
namespace {

using graph::ValueId;

struct Codes {
  std::vector<int64_t> shape;
  std::vector<int64_t> matrix;  // that is turned; empty: none
  bool straight = true;
  const char* format = "fp8_e4m3";
  Scalar element = Scalar::f32;
  bool by_row = false;  // a factor for each element of the last axis, too
};

void run(const Codes& c, bool squares) {
  G t;
  const ValueId x = t.in("x", c.shape, c.element);
  Formula f;
  f.inputs = {c.element, Scalar::f32};
  const int wide = c.element == Scalar::f32 ? f.input(0) : f.convert(ScalarOp::cast_, Scalar::f32, f.input(0));
  f.outputs = {f.op(ScalarOp::div_, f.op(ScalarOp::mul_, wide, f.constant(Scalar::f32, 100)), f.input(1))};
  ValueId scaled = t.b.map(f, {x, c.by_row ? t.in("scale", {c.shape.back()}) : t.in("scale", {})});
  const graph::Element codes{Scalar::f32, format_named(c.format)};
  if (c.straight) t.out(t.b.cast(scaled, codes));
  if (!c.matrix.empty()) t.out(t.b.cast(t.b.permute(t.b.reshape(scaled, G::shape(c.matrix)), {1, 0}), codes));
  const graph::Plan plan = graph::fuse(t.g);
  EXPECT_EQ(plan.groups.size(), 1U) << graph::print(plan.graph);
  for (const std::string& p : check(t.g, {.tolerance = 0, .machines = {"x86-64-v3", "avx512", "sm_90a", "gfx942"}})) {
    EXPECT_EQ(p.rfind("codes", 0), 0U) << p;
    EXPECT_EQ(p.find("in squares") != std::string::npos, squares) << p;
  }
}

TEST(SynthCodes, BothWaysInSquares) {
  run({{32, 64}, {32, 64}}, true);
  run({{2, 24, 20}, {48, 20}}, true);
  run({{2, 16, 3, 8}, {32, 24}}, true);
  run({{80, 36}, {80, 36}, false, "fp8_e5m2"}, true);
  run({{48, 64}, {48, 64}, true, "fp8_e4m3", Scalar::bf16}, true);
  run({{48, 64}, {48, 64}, true, "fp8_e4m3", Scalar::f32, true}, true);
}

TEST(SynthCodes, OtherSizes) {
  run({{5, 7}, {5, 7}}, false);
  run({{32, 6}, {32, 6}, false}, false);
  run({{3, 5, 11}, {}}, false);
  run({{300}, {}, true, "fp8_e5m2"}, false);
  run({{4, 40}, {}, true, "fp8_e4m3", Scalar::bf16}, false);
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
