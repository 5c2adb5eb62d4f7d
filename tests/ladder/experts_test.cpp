// Needs: cpu. Products whose rows pick matrices as machine code of this processor: the same numbers as the evaluator of
// graphs, the same bytes as the evaluator of kernels.
#include "machine_code.h"
#include "tests/kernel/synth/picked_cases.h"

namespace lumen::test {
namespace {

TEST(LadderExperts, MachineCodeIsRight) {
  const machine::MachineRef m = machine::native_machine();
  const Execute execute = machine_code(*m);
  for (const int64_t rows : {1, 150}) {
    SCOPED_TRACE(rows);
    check_experts({.rows = rows, .picked = 3, .experts = 7, .wide = 70, .deep = 130},
                  {.tolerance = 1e-4, .machines = {m->name}}, &execute);
  }
  const Experts packed{.rows = 40, .experts = 3, .wide = 64, .deep = 32, .format = format_named("q4_0")};
  check_experts(packed, {.tolerance = 1e-4, .machines = {m->name}}, &execute);
}

TEST(LadderExperts, MachineCodeLeavesTheBytesOfTheEvaluator) {
  const machine::MachineRef m = machine::native_machine();
  const Execute native = machine_code(*m), evaluator = loop_evaluator(*m);
  for (const int64_t rows : {1, 9, 33})
    for (const G& t :
         {second_of_experts({.rows = rows}), rows_gradient({.rows = rows}), weight_gradient({.rows = rows})}) {
      const auto inputs = random_inputs(t.g, {.limits = {{"picks", 4}}});
      const graph::Plan plan = graph::fuse(t.g);
      EXPECT_EQ(run_plan(plan, inputs, *m, native).results[0].values,
                run_plan(plan, inputs, *m, evaluator).results[0].values);
    }
}

}  // namespace
}  // namespace lumen::test
