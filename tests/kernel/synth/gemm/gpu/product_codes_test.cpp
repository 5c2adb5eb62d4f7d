// Needs: none. Products whose result is encoded: as it lies, transposed and both, behind maps, with the result kept,
// with the largest number, of one map and of two, whole tiles and ragged ones; against the graph evaluator.
#include "kernel/synth/product_codes.h"

#include "tests/kernel/synth/synth_harness.h"

namespace lumen::test {
namespace {

using graph::ValueId;

const std::vector<std::string> kMachines = {"x86-64-v3", "sm_80", "sm_90a", "gfx942", "gfx1100"};

struct Case {
  int64_t rows = 64, columns = 128, inner = 64;
  bool straight = true, transposed = true;
  bool kept = false, extreme = false, behind_map = false, two = false, own_extremes = false;
  Scalar result = Scalar::bf16;
  const char* format = "fp8_e4m3";
};

// Small whole numbers: sums are exact, and so are sixteen bits of them.
std::map<std::string, std::vector<double>> given(const Case& c) {
  std::map<std::string, std::vector<double>> out;
  std::mt19937 random(5);
  const auto fill = [&](const char* name, int64_t count) {
    for (int64_t i = 0; i < count; ++i) out[name].push_back(double(random() % 3) - 1);
  };
  fill("x", c.rows * c.inner);
  fill("w", c.columns * c.inner);
  fill("bias", c.columns);
  fill("gate", c.rows * c.columns);
  out["scale"] = {4};
  return out;
}

G graph_of(const Case& c) {
  G t;
  const auto wide = [&](ValueId v) {
    return t.b.type(v).element.scalar == Scalar::f32 ? v : t.b.convert(v, Scalar::f32);
  };
  const ValueId x = t.in("x", {c.rows, c.inner}, Scalar::bf16), w = t.in("w", {c.columns, c.inner}, Scalar::bf16);
  ValueId y = t.b.add(t.b.contract(x, w, "mk", "nk", "mn"), t.in("bias", {c.columns}));
  if (c.result != Scalar::f32) y = t.b.convert(y, c.result);
  const ValueId scale = t.in("scale", {1});
  if (c.kept) t.out(y);
  const auto encode = [&](ValueId v) {
    const graph::Element codes{Scalar::f32, format_named(c.format)};
    const ValueId scaled = t.b.div(wide(v), t.b.reshape(scale, G::shape({1, 1})));
    if (c.straight) t.out(t.b.cast(scaled, codes));
    if (c.transposed) t.out(t.b.cast(t.b.permute(scaled, {1, 0}), codes));
    if (!c.own_extremes) return;
    const ValueId most = t.b.reduce(t.b.unary(ScalarOp::abs_, scaled), graph::Reduction::max, {1});
    t.out(t.b.reduce(most, graph::Reduction::max, {0, 1}));
  };
  const ValueId gate = t.in("gate", {c.rows, c.columns}, Scalar::bf16);
  const ValueId mapped = c.behind_map ? t.b.mul(wide(y), wide(gate)) : y;
  encode(mapped);
  if (c.two) encode(t.b.add(wide(y), wide(gate)));
  if (c.extreme) {
    Formula magnitude;
    magnitude.inputs = {c.result};
    const int number = magnitude.input(0);
    magnitude.outputs = {magnitude.op(
        ScalarOp::abs_, c.result == Scalar::f32 ? number : magnitude.convert(ScalarOp::cast_, Scalar::f32, number))};
    const ValueId most = t.b.reduce(t.b.map(magnitude, {y}), graph::Reduction::max, {1});
    t.out(t.b.reduce(most, graph::Reduction::max, {0, 1}));
  }
  return t;
}

void run(const Case& c) {
  const G t = graph_of(c);
  const graph::Plan plan = graph::fuse(t.g);
  ASSERT_EQ(plan.groups.size(), 1U) << graph::print(plan.graph);
  ASSERT_TRUE(synth::encodes_product(plan, plan.groups[0]));
  for (const std::string& machine : kMachines) {
    const std::vector<std::string> plans = check(t.g, {.tolerance = 0, .machines = {machine}, .given = given(c)});
    const bool is_gpu = !machine.starts_with("x86");
    EXPECT_EQ(any_contains(plans, "with codes"), is_gpu) << machine << ": " << plans[0];
    EXPECT_EQ(any_contains(plans, "with codes and extremes"), is_gpu && (c.extreme || c.own_extremes))
        << machine << ": " << plans[0];
  }
}

TEST(ProductCodes, OfTheResult) {
  run({.kept = true});
  run({.kept = true, .result = Scalar::f32});
  run({.rows = 144, .columns = 80, .kept = true, .extreme = true});
}

TEST(ProductCodes, OfOneMap) {
  run({.straight = false, .kept = true, .behind_map = true});
  run({.transposed = false, .kept = true, .extreme = true, .behind_map = true, .format = "fp8_e5m2"});
  run({.rows = 80, .columns = 144, .extreme = true, .behind_map = true});
}

TEST(ProductCodes, OfTwoMaps) {
  run({.behind_map = true, .two = true});
  run({.behind_map = true, .two = true, .own_extremes = true});
  run({.rows = 144, .columns = 208, .kept = true, .extreme = true, .behind_map = true, .two = true});
}

// Scales of the tensor that another step keeps are supplied.
TEST(ProductCodes, UnderSuppliedScales) {
  G t;
  const ValueId x = t.in("x", {128, 64}, Scalar::bf16), w = t.in("w", {64, 64}, Scalar::bf16);
  const ValueId y = t.b.convert(t.b.contract(x, w, "mk", "nk", "mn"), Scalar::bf16);
  const ValueId scale = t.in("scale", {1, 1});
  const FormatRef format = format_named("fp8_tensor");
  const graph::Element codes{Scalar::f32, format};
  const ValueId wide = t.b.convert(y, Scalar::f32);
  const int field = std::ranges::find(format->fields, Level::tensor, &Field::level) - format->fields.begin();
  const auto supplied = [&](ValueId v) { return t.b.cast(v, codes, {{field, FieldSource::supplied}}, {scale}); };
  t.out(supplied(wide));
  t.out(supplied(t.b.permute(wide, {1, 0})));
  t.out(y);
  Case c{.rows = 128, .columns = 64};
  std::map<std::string, std::vector<double>> numbers = given(c);
  numbers["scale"] = {0.125};
  const std::vector<std::string> plans = check(t.g, {.tolerance = 0, .machines = kMachines, .given = numbers});
  EXPECT_TRUE(any_contains(plans, "with codes"));
}

// Numbers of rows and columns that vectors do not divide, and matrices beside each other: kernels of their own.
TEST(ProductCodes, OtherwiseApart) {
  for (const auto& [rows, columns] : {std::pair{130, 64}, std::pair{64, 72}}) {
    const Case c{.rows = rows, .columns = columns, .kept = true, .extreme = true, .behind_map = true};
    const std::vector<std::string> plans =
        check(graph_of(c).g, {.tolerance = 0, .machines = kMachines, .given = given(c)});
    EXPECT_FALSE(any_contains(plans, "with codes"));
  }
}

}  // namespace
}  // namespace lumen::test
