// needs: none. How products are computed, as values: what families state of their plans, and that the loops of tasks
// cover the result.
#include "kernel/synth/gemm/product_schedule.h"

#include <gtest/gtest.h>

#include "kernel/synth/dot.h"
#include "number/library/library.h"
#include "tests/kernel/synth/gemm/dot_harness.h"

namespace lumen {
namespace {

using dot_test::type_of;
using graph::Role;
using graph::ValueId;
using synth::ProductSchedule;

std::string schedule_of(const std::string& machine, const std::string& format, int64_t rows, int64_t n, int64_t k,
                        const synth::Options& options = {}) {
  graph::Graph g;
  graph::Builder build(g);
  const ValueId x = build.input("x", Role::data, type_of({rows, k}));
  const FormatRef f = format.empty() ? nullptr : FormatLibrary::builtin().get(format);
  ValueId w = build.input("w", Role::parameter, type_of({n, k}, f));
  if (f) w = build.cast(w, {Scalar::f32, nullptr});
  g.results = {build.contract(x, w, "mk", "nk", "mn")};
  g.result_names = {"y"};
  const graph::Plan plan = dot_test::one_dot_group(g);
  return synth::product_schedule(plan, plan.groups[0], *machine::find_machine(machine), options);
}

// Whether each of these is a part of the text.
void expect_parts(const std::string& text, const std::vector<std::string>& parts) {
  for (const std::string& part : parts) EXPECT_NE(text.find(part), std::string::npos) << text << "\nhas no " << part;
}

TEST(ProductSchedule, RowsOfAProcessorAreLaidOutByAnEarlierStepAndTheWeightIsUnpackedInRegisters) {
  expect_parts(schedule_of("avx512-vnni", "q4_0", 1, 64, 256),
               {"tasks ", " of 1x", ", a scratch by step, b memory by product, sums registers"});
  expect_parts(schedule_of("x86-64-v3", "", 1, 64, 256), {"tasks ", "f32 fma, a memory, b memory, sums registers"});
}

TEST(ProductSchedule, ManyRowsFillAPanelOfTheWeight) {
  expect_parts(schedule_of("avx512-vnni", "q4_0", 64, 64, 256),
               {"tasks ", ", a scratch by step, b panel by task, sums panel"});
}

TEST(ProductSchedule, ExactActivationsStayAsTheyAre) {
  expect_parts(schedule_of("x86-64-v3", "q4_0", 1, 64, 256, {.exact = true}),
               {"f32 fma, a memory, b memory by product"});
}

TEST(ProductSchedule, BlocksCopyStagesAheadIntoSharedMemory) {
  const std::string one = schedule_of("sm_90a", "q4_0", 1, 4096, 4096);
  expect_parts(one, {"blocks ", ", stages ", ", a shared by lanes, b shared by product "});
  expect_parts(schedule_of("sm_90a", "q4_0", 8, 4096, 4096), {"blocks ", ", a shared by step "});
}

TEST(ProductSchedule, LoopsOfTasksCoverTheResult) {
  synth::DotProblem p;
  p.m.extent = 10;
  p.n.extent = 70;
  p.k.extent = 32;
  synth::TileCut cut;
  cut.height = 4;
  cut.vectors = 2;
  cut.m_tiles = 3;
  cut.n_tiles = 3;
  cut.m_task = 2;
  cut.m_tasks = 2;
  cut.n_tasks = 3;
  const ProductSchedule tiles = ProductSchedule{}.with(cut, 16, p).with("f32 fma");
  EXPECT_EQ(tiles.text(), "tasks 1x2x3 of 8x32, tile 4x32 f32 fma, a memory, b memory, sums registers");
  EXPECT_GE(tiles.m_tasks * tiles.m_task * tiles.height, p.m.extent);
  EXPECT_GE(tiles.n_tasks * tiles.n_task * tiles.columns(), p.n.extent);

  synth::RowsPlan rows;
  rows.height = 1;
  rows.width = 4;
  rows.n_task = 6;
  rows.n_tasks = 3;
  ProductSchedule row;
  EXPECT_EQ(row.with(rows, p).with("r").text(), "tasks 1x1x3 of 1x24, tile 1x4 r, a memory, b memory, sums registers");
  row.workers = ProductSchedule::Workers::waves;
  EXPECT_EQ(row.with(rows, p).with("r").text(), "waves 1x1x18 of 1x4, tile 1x4 r, a memory, b memory, sums registers");
}

}  // namespace
}  // namespace lumen
