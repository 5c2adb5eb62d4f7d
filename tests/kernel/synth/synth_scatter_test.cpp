// Needs: none. scatter_add by rows against the graph evaluator: repeats, long lists, empty rows, several digits, the
// order of every sum, refused indices.
#include "tests/kernel/synth/scatter_cases.h"

namespace lumen::test {
namespace {

TEST(SynthScatter, RowsHaveTheEvaluatorsSums) {
  for (const ScatterCase& c : scatter_cases()) {
    const G t = scatter_graph(c);
    Check how{.tolerance = c.tolerance, .machines = {"sm_90a", "gfx942"}};
    how.given["index"] = indices_of(c);
    bool by_rows = false;
    for (const std::string& plan : check(t.g, how)) by_rows = by_rows || plan.find("into rows of") != std::string::npos;
    EXPECT_TRUE(by_rows) << c.name;
  }
}

// What a sum's order is follows from the indices alone: whole numbers beyond what f32 holds show it.
TEST(SynthScatter, SumsAreInOrder) {
  G t;
  t.out(t.b.scatter_add(t.in("value", {40, 1}), t.in("index", {40}, Scalar::i32), graph::Dim(3)));
  Check how{.machines = {"sm_90a"}};
  how.given["index"] = std::vector<double>(40, 1.0);
  std::vector<double> value(40, 1.0);
  value[0] = 0x1p24;  // the first ones of a piece vanish beside it
  how.given["value"] = value;
  const auto inputs = random_inputs(t.g, how);
  const auto m = machine::find_machine("sm_90a");
  const PlanRun run = run_plan(graph::fuse(t.g), inputs, *m, loop_evaluator(*m));
  // Pieces of 8 numbers, the list begins with one: 2^24 alone, 7 ones lost in it, then 4 sums of 8.
  EXPECT_EQ(run.results[0].values, (std::vector<double>{0, 0x1p24 + 32, 0}));
}

TEST(SynthScatter, IndexOutsideIsGuarded) {
  G t;
  t.out(t.b.scatter_add(t.in("value", {40, 8}), t.in("index", {40}, Scalar::i32), graph::Dim(5)));
  for (const double outside : {5.0, -1.0}) {
    Check how{.limits = {{"index", 5}}};
    auto inputs = random_inputs(t.g, how);
    inputs["index"].values[17] = outside;
    const auto m = machine::find_machine("sm_90a");
    const PlanRun run = run_plan(graph::fuse(t.g), inputs, *m, loop_evaluator(*m));
    EXPECT_EQ(run.status.code, loop::kGuardIndex);
    EXPECT_EQ(run.status.detail, static_cast<int64_t>(outside));
  }
}

}  // namespace
}  // namespace lumen::test
