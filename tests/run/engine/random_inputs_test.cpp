// Needs: cpu. Numbers for inputs that are only to be timed: in range, not zero, the same each time.
#include "run/engine/random_inputs.h"

#include <gtest/gtest.h>

#include <cmath>

#include "number/library/library.h"
#include "tests/run/graphs.h"

namespace lumen::run {
namespace {

TEST(DrawnInputs, FitTheProgram) {
  Engine engine(options());
  const graph::Graph g = small_network();
  std::vector<std::vector<float>> seen;
  for (int i = 0; i < 2; ++i) {
    const auto program = engine.compile(g, {});
    bind_random_inputs(engine, g, {}, *program);
    program->run();  // an index outside of its table is an Error
    seen.push_back(floats_of(program->result("logits")));
    for (const float x : seen.back()) EXPECT_TRUE(std::isfinite(x));
    EXPECT_NE(seen.back(), std::vector<float>(seen.back().size(), seen.back()[0])) << "not all rows are alike";
  }
  EXPECT_EQ(seen[0], seen[1]);
}

TEST(DrawnInputs, StatesAreZeroAndFormatsHoldNumbers) {
  Engine engine(options());
  const auto formats = FormatLibrary::builtin();
  graph::Graph g;
  graph::Builder b(g);
  using graph::Role;
  Type held = f32({4, 64});
  held.element.format = formats.all().front();
  const auto w = b.cast(b.input("w", Role::parameter, held), {Scalar::f32, nullptr});
  const auto s = b.input("s", Role::state, f32({4, 64}));
  const auto rate = b.input("rate", Role::data, f32({}));
  g.results = {b.reduce(b.unary(ScalarOp::abs_, w), graph::Reduction::sum, {0, 1}),
               b.reduce(b.unary(ScalarOp::abs_, s), graph::Reduction::sum, {0, 1}), b.add(rate, rate)};
  g.result_names = {"w", "s", "rate"};
  const auto program = engine.compile(g, {});
  bind_random_inputs(engine, g, {}, *program);
  program->run();
  EXPECT_GT(floats_of(program->result("w"))[0], 1);
  EXPECT_EQ(floats_of(program->result("s"))[0], 0);
  EXPECT_GT(floats_of(program->result("rate"))[0], 0);
}

}  // namespace
}  // namespace lumen::run
