// Needs: cpu. The ladder of graphs: random elementwise, reducing and moving graphs on awkward shapes, machine code ==
// graph eval.
#include "graph_cases.h"
#include "machine_code.h"

namespace lumen::test {
namespace {

TEST(LadderGraphs, RandomGraphs) {
  const machine::MachineRef m = machine::native_machine();
  const Execute execute = machine_code(*m);
  for (uint32_t seed = 1; seed <= 40; ++seed) {
    const G t = random_graph(seed);
    SCOPED_TRACE("seed " + std::to_string(seed) + "\n" + graph::print(t.g));
    check(t.g, {.tolerance = 1e-4, .machines = {m->name}, .seed = seed}, &execute);
  }
}

TEST(LadderGraphs, AttentionAndSoftmax) {
  const machine::MachineRef m = machine::native_machine();
  const Execute execute = machine_code(*m);
  for (const auto& [queries, keys, depth] : kAttentions)
    check(attention(queries, keys, depth).g, {.tolerance = 1e-5, .machines = {m->name}}, &execute);
}

}  // namespace
}  // namespace lumen::test
