// needs: none. The work of a training step: products once, and once for each gradient that is wanted.
#include "graph/grad/work.h"

#include <gtest/gtest.h>

#include "graph/ir/build.h"

namespace lumen::graph {
namespace {

Type matrix(int64_t rows, int64_t columns) {
  return {{rows, columns}, {Scalar::f32, nullptr}};
}

TEST(TrainingWork, CountsProductsAndTheirGradients) {
  Graph g;
  Builder b(g);
  const ValueId x = b.input("x", Role::data, matrix(3, 5));
  const ValueId u = b.input("u", Role::parameter, matrix(7, 5));
  const ValueId w = b.input("w", Role::parameter, matrix(11, 7));
  const ValueId h = b.contract(x, u, "mk", "nk", "mn");  // 3 5 7
  const ValueId y = b.contract(h, w, "mk", "nk", "mn");  // 3 7 11
  (void)b.contract(y, y, "mk", "nk", "mn");              // nobody needs it
  g.results = {b.reshape(b.reduce(y, Reduction::sum, {0, 1}), {})};
  g.result_names = {"loss"};
  const double first = 2 * 3 * 5 * 7, second = 2 * 3 * 7 * 11;
  EXPECT_EQ(training_work(g, {}), first + second);
  // Both matrices: no gradient towards the data.
  EXPECT_EQ(training_work(g, {"u", "w"}), 2 * first + 3 * second);
  // A frozen matrix passes gradients on; the first product of a frozen one needs none.
  EXPECT_EQ(training_work(g, {"u"}), 2 * first + 2 * second);
  EXPECT_EQ(training_work(g, {"w"}), first + 2 * second);
}

TEST(TrainingWork, PickedMatricesCountOnce) {
  Graph g;
  Builder b(g);
  const ValueId x = b.input("x", Role::data, matrix(3, 5));
  const ValueId experts = b.input("w", Role::parameter, {{8, 7, 5}, {Scalar::f32, nullptr}});
  const ValueId picked = b.input("i", Role::data, {{3, 2}, {Scalar::i32, nullptr}});
  const ValueId y = b.contract_gather(x, experts, picked, "nk", "efk", "nj");
  g.results = {b.reshape(b.reduce(y, Reduction::sum, {0, 1, 2}), {})};
  g.result_names = {"loss"};
  EXPECT_EQ(training_work(g, {"w"}), 2.0 * (2 * 3 * 2 * 7 * 5)) << "two of eight for each row";
}

}  // namespace
}  // namespace lumen::graph
