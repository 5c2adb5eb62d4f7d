// Needs: none. A layer's three products from operands in formats with scales of rows, tiles and the tensor: which
// kernels encode them and what they read and write, and the same bits as the graph whose casts fit for themselves.
#include <gtest/gtest.h>

#include "blocks.h"
#include "graph/grad/reverse.h"
#include "graph/ir/text.h"
#include "graph/match/codes.h"
#include "graph/pipeline/pipeline.h"
#include "number/library/library.h"
#include "plan_run.h"

namespace lumen::graph {
namespace {

constexpr int64_t kTexts = 2, kLength = 128, kIn = 256, kOut = 128;

// The sum of c * -(tanh(x) w) beside its gradients.
Graph layer(const char* format) {
  static const FormatLibrary library = FormatLibrary::builtin();
  Graph g;
  Builder b(g);
  const ValueId x = b.input("x", Role::data, {{kTexts, kLength, kIn}, {}});
  const ValueId w = b.input("w", Role::parameter, {{kOut, kIn}, {}});
  const ValueId c = b.input("c", Role::data, {{kTexts, kLength, kOut}, {}});
  const ValueId h = b.unary(ScalarOp::tanh_, x);
  const ValueId y = b.mul(b.unary(ScalarOp::neg_, b.contract(h, w, "btk", "nk", "btn")), c);
  g.results = {b.reshape(b.reduce(y, Reduction::sum, {0, 1, 2}), {})};
  for (const ValueId d : differentiate(g, g.results[0], {x, w})) g.results.push_back(d);
  g.result_names.assign(g.results.size(), "");
  simplify(g);
  round_products(g, ProductType(Scalar::bf16, library.get(format)));
  split_contracts(g);
  simplify(g);
  return g;
}

struct Kernels {
  int encoding = 0, all = 0;  // groups with a cast into a format
  int64_t bytes = 0;          // that groups read and write
};
Kernels kernels_of(const Plan& plan) {
  Kernels k;
  for (const Group& group : plan.groups) {
    k.all += 1;
    k.encoding += group.shape == KernelShape::move ? 1 : 0;
    for (const ValueId v : group.inputs) k.bytes += byte_size(plan.graph[v].type);
    for (const ValueId v : group.results) k.bytes += byte_size(plan.graph[v].type);
  }
  return k;
}

void expect_same_bits(const Graph& g, const Plan& plan) {
  const auto in = random_inputs(g, 4, 11);
  const std::vector<Tensor> expected = eval(g, in);
  const PlanRun run = run_plan(plan, plan_memory(plan), in);
  ASSERT_EQ(run.wrong, "") << print(plan.graph);
  for (size_t r = 0; r < expected.size(); ++r) EXPECT_EQ(run.results[r].values, expected[r].values) << r;
}

// Activation, gradient and weight are encoded by one kernel each that writes both matrices; the largest of each row of
// what a map computes is found by that map.
TEST(SeparateFits, OperandsOfRowsAreWrittenBothWaysAtOnce) {
  const Graph g = layer("fp8_row_p2");
  const Plan plan = fuse(g);
  expect_same_bits(g, plan);
  const Kernels k = kernels_of(plan);
  EXPECT_EQ(k.encoding, 3) << print(plan.graph);
  EXPECT_EQ(k.all, 14) << print(plan.graph);
  for (const Group& group : plan.groups)
    if (group.shape == KernelShape::move) {
      EXPECT_EQ(group.results.size(), 2U);
    }
  int with_rows = 0;  // reductions that write the numbers as well
  for (const Group& group : plan.groups)
    if (group.shape == KernelShape::reduce && group.results.size() > 1) ++with_rows;
  EXPECT_GE(with_rows, 1);
}

TEST(SeparateFits, TilesAndTensorsToo) {
  for (const char* format : {"fp8_1x128_p2", "fp8_tile", "fp8_tensor", "int8_row"}) {
    SCOPED_TRACE(format);
    const Graph g = layer(format);
    const Plan plan = fuse(g);
    expect_same_bits(g, plan);
    for (const Group& group : plan.groups)
      for (const ValueId v : group.nodes) {
        const Node& node = plan.graph[v];
        if (node.op != Op::cast_ || !node.type.element.format) continue;
        const bool in_squares = fitted_square(plan.graph, v) > 0;
        EXPECT_EQ(in_squares, node.type.element.format->tile_bytes > 0);
        EXPECT_EQ(node.operands.size(), in_squares ? 1U : 2U);
        if (in_squares) {
          EXPECT_EQ(group.nodes.size() > 1, true) << "the kernel that encodes reads the numbers";
        }
      }
  }
}

// The bytes of a step are what they were measured to be once, and fewer whenever a pass over them goes.
TEST(SeparateFits, BytesOfALayerStay) {
  const int64_t numbers = kTexts * kLength * kIn;
  EXPECT_LE(kernels_of(fuse(layer("fp8_row_p2"))).bytes, 46 * numbers);
}

}  // namespace
}  // namespace lumen::graph
