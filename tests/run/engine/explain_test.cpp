// needs: cpu. The table of a program's kernels, the ceilings beside it, and single products against them.
#include "run/engine/program/explain.h"

#include <gtest/gtest.h>

#include "emit/emit.h"
#include "number/library/library.h"
#include "run/engine/gpu_ceilings.h"
#include "run/engine/roofline.h"

namespace lumen::run {
namespace {

Ceilings some_ceilings() {
  Ceilings c;
  c.read_bytes = 10e9;
  c.f32_flops = 100e9;
  c.rows = {{"dot4.u8i8.i32x16", "int8", 1000e9}};
  return c;
}

TEST(Explain, EqualPlansAreOneLineMostExpensiveFirst) {
  const auto joined = join_equal({{"a", 1, 0.1, 10, 1}, {"b", 1, 0.5, 20, 2}, {"a", 1, 0.2, 10, 1}});
  ASSERT_EQ(joined.size(), 2U);
  EXPECT_EQ(joined[0].plan, "b");
  EXPECT_EQ(joined[1].launches, 2);
  EXPECT_DOUBLE_EQ(joined[1].seconds, 0.1 + 0.2);
  EXPECT_EQ(joined[1].flops, 20);
}

TEST(Explain, TheCeilingThatBindsIsTheSlowerOne) {
  const Ceilings c = some_ceilings();
  EXPECT_STREQ(bound_of("dot f32 fma", 100e9, 1e9, c).ceiling, "f32");
  EXPECT_DOUBLE_EQ(bound_of("dot f32 fma", 100e9, 1e9, c).seconds, 1);
  EXPECT_STREQ(bound_of("rows dot4.u8i8.i32x16", 100e9, 0, c).ceiling, "int8");
  EXPECT_DOUBLE_EQ(bound_of("rows dot4.u8i8.i32x16", 100e9, 0, c).seconds, 0.1);
  EXPECT_STREQ(bound_of("rows dot4.u8i8.i32x16", 1e9, 10e9, c).ceiling, "read");
  const std::string table = times_table({{"dot f32 fma", 2, 4.0, 50e9, 1e9}}, 2, &c);
  EXPECT_NE(table.find("25% f32"), std::string::npos) << table;
}

TEST(Explain, PredictionsAreTheModelsUnlessACeilingIsSlower) {
  Ceilings c = some_ceilings();
  c.cycles = 4e9;
  EXPECT_DOUBLE_EQ(predicted({"dot f32 fma", 1, 0, 1e9, 1e6, 8e9}, c), 2);
  EXPECT_DOUBLE_EQ(predicted({"dot f32 fma", 1, 0, 100e9, 1e6, 1e9}, c), 1);
  EXPECT_DOUBLE_EQ(predicted({"map", 1, 0, 0, 20e9}, c), 2);
  const std::string table = times_table({{"dot f32 fma", 2, 4.0, 50e9, 1e9, 8e9}}, 2, &c);
  EXPECT_NE(table.find("2000.000"), std::string::npos) << table;
}

TEST(Explain, ParametersStandBesideThePlansOfTheirProducts) {
  EXPECT_EQ(parameters_table({}), "");
  EXPECT_EQ(parameters_table({{"layers.0.wq q4_0", "dot a"},
                              {"layers.1.wq q4_0", "dot a"},
                              {"layers.10.w2 q4_0", "dot a"},
                              {"layers.0.w2 f32", "dot b"},
                              {"output f32", "dot b"}}),
            "products of parameters:\n  layers.*.wq q4_0 (2), layers.*.w2 q4_0: dot a\n  layers.*.w2 f32, output f32: "
            "dot b\n");
}

TEST(Explain, LosersStandBeneathTheirPlanWithTheirCosts) {
  EXPECT_EQ(bids_table({}, 1e9), "");
  const OfferedPlans offer{
      "dot 1x2x3 a", {{"a", "dot 1x2x3 a", 12300, {}}, {"b", "dot 1x2x3 b", 2e6, {}}, {"c", {}, 0, "too many rows"}}};
  EXPECT_EQ(bids_table({offer, offer}, 1e9),
            "bids for products, predicted:\n  dot 1x2x3 a\n"
            "    a                   12.3 us  dot 1x2x3 a\n"
            "    b                 2000.0 us  dot 1x2x3 b\n"
            "    c                   refused  too many rows\n");
  EXPECT_NE(bids_table({offer}, 0).find("1.23e+04 cycles"), std::string::npos);
}

TEST(Roofline, EveryMachineHasItsCeilings) {
  for (const machine::MachineRef& m : machine::all_machines()) {
    for (const CeilingKernel& k : m->kind == machine::Kind::gpu ? gpu_ceiling_kernels(*m) : ceiling_kernels(*m, 4)) {
      EXPECT_GT(k.work, 0) << m->name << " " << k.kernel.name;
      const std::string text = emit::emit({&k.kernel, 1}, *m, emit::Output::assembly);
      EXPECT_NE(text.find("ceiling"), std::string::npos) << m->name << " " << k.kernel.name;
    }
  }
}

// How fast is not a test; that what is measured makes sense is one.
TEST(Roofline, CeilingsAndProductsAreMeasured) {
  Engine::Options options;
  options.threads = 2;
  options.cache_folder = "off";
  Engine engine(options);
  const Ceilings c = engine.measure_ceilings();
  EXPECT_GT(c.read_bytes, 1e8);
  EXPECT_GT(c.f32_flops, 1e8);
  EXPECT_EQ(c.rows.size(), engine.device().machine().dots.size() + engine.device().machine().tiles.size());
  for (size_t i = 0; i < c.rows.size(); ++i) {
    EXPECT_GT(c.rows[i].flops, 1e8) << c.rows[i].name;
    EXPECT_GE(c.rows[0].flops, c.rows[i].flops);
  }
  const FormatRef format = FormatLibrary::builtin().get("q4_0");
  const ProductTime t = time_product(engine, format, {3, 64, 128}, false, c);
  EXPECT_GT(t.seconds, 0);
  EXPECT_EQ(t.flops, 2.0 * 3 * 64 * 128);
  EXPECT_EQ(t.bytes, 64.0 * 128 * 18 / 32);
  EXPECT_NE(t.plan, "");
}

}  // namespace
}  // namespace lumen::run
