// needs: none. Results of blocks in every length of number, whole and ragged: what lanes pass on to each other before
// they write is what each would have written. Against the sums of a graph's evaluator.
#include "kernel/synth/gemm/gpu/block_write.h"

#include <gtest/gtest.h>

#include "kernel/loop/text.h"
#include "kernel/synth/dot.h"
#include "kernel/synth/gemm/gpu/dot_block.h"
#include "tests/kernel/synth/gemm/dot_harness.h"

namespace lumen {
namespace {

using graph::ValueId;

// Small integers: sums and roundings are exact.
graph::Tensor small_numbers(const graph::Type& type, std::mt19937& random) {
  graph::Tensor t;
  t.type = type;
  const int64_t count = graph::elements(type.shape).number();
  for (int64_t i = 0; i < count; ++i) t.values.push_back(static_cast<double>(static_cast<int>(random() % 5)) - 2);
  return t;
}

void check(const machine::Machine& m, int64_t rows, int64_t columns, Scalar to, bool adds) {
  graph::Graph g;
  graph::Builder build(g);
  const auto input = [&](const char* name, std::vector<int64_t> dims, Scalar s) {
    graph::Type t;
    for (const int64_t d : dims) t.shape.emplace_back(d);
    t.element.scalar = s;
    return build.input(name, graph::Role::data, t);
  };
  constexpr int64_t kK = 64;
  const ValueId x = input("x", {rows, kK}, Scalar::bf16), y = input("y", {columns, kK}, Scalar::bf16);
  ValueId r = build.contract(x, y, "mk", "nk", "mn");
  if (adds) r = build.add(r, input("z", {rows, columns}, Scalar::f32));
  if (to != Scalar::f32) r = build.convert(r, to);
  g.results = {r};
  g.result_names = {"r"};
  const graph::Plan plan = dot_test::one_dot_group(g);
  std::mt19937 random(3);
  std::map<std::string, graph::Tensor> inputs;
  for (const ValueId v : g.inputs()) inputs[g[v].attributes.name] = small_numbers(g[v].type, random);
  graph::Tensor want = graph::eval(g, inputs).at(0);
  const synth::DotProblem p = synth::normalise_dot(plan, plan.groups[0]);
  std::vector<synth::BlockDot> chosen = synth::choose_block_dots(p, m, true, 0);
  ASSERT_FALSE(chosen.empty());
  synth::Synthesis s;
  synth::write_block_dot(plan.graph, chosen[0], m, s);
  SCOPED_TRACE(m.name + ": " + s.steps.back().plan);
  // Lanes of these instructions hold two numbers of a row.
  if (m.name.starts_with("sm_") && columns % 16 == 0) {
    EXPECT_NE(loop::print(s.steps.back().kernel).find("wave_shuffle"), std::string::npos);
  }
  ASSERT_EQ(dot_test::run_evaluated(s, plan, inputs, m), dot_test::to_bytes(want));
}

TEST(BlockWrite, EveryLengthOfNumbersWholeAndRagged) {
  for (const char* name : {"sm_90a", "sm_80", "gfx942", "gfx1100"}) {
    const machine::MachineRef m = machine::find_machine(name);
    for (const Scalar to : {Scalar::f32, Scalar::bf16, Scalar::f16, Scalar::i8})
      for (const auto& [rows, columns] : {std::pair{64, 128}, std::pair{37, 80}, std::pair{40, 44}, std::pair{21, 37}})
        check(*m, rows, columns, to, (rows + columns) % 3 == 0);
  }
}

}  // namespace
}  // namespace lumen
