// Needs: cpu. Graphs through every floor and back: compiled programs against the graph evaluator.
#include <gtest/gtest.h>

#include "base/error.h"
#include "tests/run/graphs.h"

namespace lumen::run {
namespace {

using graph::Role;

TEST(Compile, AMapEqualsTheEvaluatorBitForBit) {
  graph::Graph g;
  graph::Builder b(g);
  const auto x = b.input("x", Role::data, f32({3, 37})), y = b.input("y", Role::data, f32({37}));
  g.results = {b.add(b.mul(x, y), b.scalar(1.5))};
  g.result_names = {"r"};
  Engine engine(options());
  const auto inputs = random_inputs(g, 1);
  const auto program = run_once(engine, g, inputs);
  EXPECT_EQ(bytes_of(program->result("r")), to_bytes(graph::eval(g, inputs)[0]));
}

TEST(Compile, ANetworkComesNearTheEvaluator) {
  const graph::Graph g = small_network();
  Engine engine(options());
  const auto inputs = random_inputs(g, 2);
  const auto program = run_once(engine, g, inputs);
  const auto want = graph::eval(g, inputs);
  expect_near(floats_of(program->result("logits")), want[0].values, 1e-4);
  expect_near(floats_of(program->result("norm")), want[1].values, 1e-4);
  EXPECT_EQ(program->input_names().size(), 5U);
  EXPECT_EQ(program->input_type("w1"), f32({40, 24}));
}

// Two products of one input, and what follows each, are two launches and not four; in every bit what they are alone.
TEST(Compile, GroupsOfOneKindRunAtOnce) {
  graph::Graph g;
  graph::Builder b(g);
  const auto x = b.input("x", Role::data, f32({3, 256}));
  std::vector<graph::ValueId> products, ways;
  for (const char* name : {"v", "w"}) {
    const auto weight = b.input(name, Role::parameter, f32({512, 256}));
    products.push_back(b.contract(x, weight, "mk", "nk", "mn"));
    ways.push_back(b.unary(ScalarOp::exp_, b.reduce(products.back(), graph::Reduction::max, {1})));
  }
  g.results = {ways[0], ways[1], products[0], products[1]};
  g.result_names = {"a", "b", "v x", "w x"};
  const auto inputs = random_inputs(g, 2);
  for (const int threads : {1, 2, 5}) {
    Engine engine(options("off", threads));
    const auto program = run_once(engine, g, inputs);
    const auto want = graph::eval(g, inputs);
    expect_near(floats_of(program->result("a")), want[0].values, 1e-4);
    expect_near(floats_of(program->result("b")), want[1].values, 1e-4);
    EXPECT_NE(program->explain().find("2 at once: dot"), std::string::npos) << program->explain();
    for (const KernelTime& k : program->times()) EXPECT_EQ(k.plan.rfind("2 at once", 0), 0U) << k.plan;
  }
}

// A guard names the group whose it is, though a launch has two.
TEST(Compile, GuardsOfGroupsThatRunAtOnce) {
  graph::Graph g;
  graph::Builder b(g);
  const auto table = b.input("table", Role::parameter, f32({20, 64}));
  for (const char* name : {"first", "second"}) {
    g.results.push_back(b.gather(table, b.input(name, Role::data, scalars(Scalar::i32, {3}))));
    g.result_names.push_back(std::string("of ") + name);
  }
  Engine engine(options());
  const auto program = engine.compile(g, {});
  for (const KernelTime& k : program->times()) EXPECT_EQ(k.plan.rfind("2 at once: gather", 0), 0U) << k.plan;
  const auto bind = [&](const std::string& name, double x) {
    program->bind(name, upload(engine, {program->input_type(name), {1, x, 3}, {}}));
  };
  program->bind("table", upload(engine, random_tensor(program->input_type("table"), 1)));
  for (const char* wrong : {"first", "second"}) {
    bind("first", std::string(wrong) == "first" ? 77 : 2);
    bind("second", std::string(wrong) == "second" ? 77 : 2);
    try {
      program->run();
      ADD_FAILURE() << "index 77 of 20 rows";
    } catch (const Error& error) {
      EXPECT_NE(std::string(error.what()).find(std::string("gather '") + wrong + "': index 77"), std::string::npos)
          << error.what();
    }
  }
}

TEST(Compile, AProgramLendsItsMemory) {
  const graph::Graph g = small_network();
  Engine engine(options());
  const auto inputs = random_inputs(g, 2);
  const auto first = run_once(engine, g, inputs);
  const auto want = bytes_of(first->result("logits"));
  ASSERT_GT(first->own_bytes(), 0);
  CompileOptions borrowing;
  borrowing.lender = first;
  const auto second = run_once(engine, g, inputs, borrowing);
  EXPECT_EQ(second->own_bytes(), 0);
  EXPECT_EQ(bytes_of(second->result("logits")), want);
  EXPECT_FALSE(first->lend(first->arena_bytes() + 1)) << "more than there is";
}

TEST(Compile, ThreadsDoNotChangeBits) {
  const graph::Graph g = small_network();
  const auto inputs = random_inputs(g, 3);
  std::vector<std::vector<uint8_t>> seen;
  for (const int threads : {1, 2, 3}) {
    Engine engine(options("off", threads));
    seen.push_back(bytes_of(run_once(engine, g, inputs)->result("norm")));
  }
  EXPECT_EQ(seen[0], seen[1]);
  EXPECT_EQ(seen[0], seen[2]);
}

TEST(Compile, SymbolsGetNumbers) {
  graph::Graph g;
  graph::Builder b(g);
  Type t = f32({1, 8});
  t.shape[0] = graph::Dim("B");
  g.results = {b.unary(ScalarOp::neg_, b.input("x", Role::data, t))};
  g.result_names = {"r"};
  Engine engine(options());
  CompileOptions compile;
  compile.symbols["B"] = 5;
  const auto program = engine.compile(g, compile);
  EXPECT_EQ(program->input_type("x"), f32({5, 8}));
  const Tensor x = random_tensor(f32({5, 8}), 4);
  program->bind("x", upload(engine, x));
  program->run();
  const auto r = floats_of(program->result("r"));
  for (size_t i = 0; i < r.size(); ++i) EXPECT_EQ(static_cast<double>(r[i]), -x.values[i]);
}

TEST(Compile, ConstantsAreUploaded) {
  graph::Graph g;
  graph::Builder b(g);
  const auto x = b.input("x", Role::data, f32({4}));
  g.results = {b.add(x, b.constant(f32({4}), {1, 2, 3, 0.5}))};
  g.result_names = {"r"};
  Engine engine(options());
  const auto program = run_once(engine, g, {{"x", {f32({4}), {10, 20, 30, 40}, {}}}});
  EXPECT_EQ(floats_of(program->result("r")), (std::vector<float>{11, 22, 33, 40.5F}));
}

// count += x, in place, over several runs; and rows of a cache written where a position says.
TEST(Compile, StatesAreUpdatedInPlace) {
  graph::Graph g;
  graph::Builder b(g);
  const auto count = b.input("count", Role::state, f32({2, 9})), x = b.input("x", Role::data, f32({2, 9}));
  const auto cache = b.input("cache", Role::state, f32({6, 9}));
  const auto at = b.input("at", Role::data, scalars(Scalar::i32, {}));
  const auto zero = b.constant(scalars(Scalar::i32, {}), {0});
  const auto summed = b.update(count, b.add(count, x));
  g.results = {summed, b.update(cache, x, {at, zero})};
  g.result_names = {"count", "cache"};
  Engine engine(options());
  const auto program = engine.compile(g, {});
  const Tensor xs = random_tensor(f32({2, 9}), 5);
  const auto state = std::make_shared<DeviceTensor>(engine.device(), f32({2, 9}));
  program->bind("count", state);
  program->bind("cache", std::make_shared<DeviceTensor>(engine.device(), f32({6, 9})));
  program->bind("x", upload(engine, xs));
  for (const int position : {0, 4}) {
    program->bind("at", upload(engine, {scalars(Scalar::i32, {}), {static_cast<double>(position)}, {}}));
    program->run();
  }
  EXPECT_EQ(program->result("count").get(), state.get());
  const auto sums = floats_of(state);
  for (size_t i = 0; i < sums.size(); ++i)
    EXPECT_EQ(sums[i], static_cast<float>(xs.values[i]) + static_cast<float>(xs.values[i]));
  const auto rows = floats_of(program->result("cache"));
  for (size_t r = 0; r < 6; ++r)
    for (size_t c = 0; c < 9; ++c)
      EXPECT_EQ(static_cast<double>(rows[r * 9 + c]), r < 2    ? xs.values[r * 9 + c]
                                                      : r >= 4 ? xs.values[(r - 4) * 9 + c]
                                                               : 0);

  program->bind("at", upload(engine, {scalars(Scalar::i32, {}), {5}, {}}));
  try {
    program->run();
    FAIL() << "an update outside its state was accepted";
  } catch (const Error& e) {
    EXPECT_EQ(std::string(e.what()), "update of 'cache': position 5 does not fit into tensor<6x9xf32>");
  }
}

TEST(Compile, IndicesOutsideTheTableAreErrors) {
  const graph::Graph g = small_network();
  auto inputs = random_inputs(g, 6);
  inputs["x"].values[17] = 11;
  Engine engine(options());
  try {
    run_once(engine, g, inputs);
    FAIL() << "index 11 of 11 rows was accepted";
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), Exit::user);
    EXPECT_NE(std::string(e.what()).find("gather 'x': index 11 is outside 0..10"), std::string::npos) << e.what();
  }
}

TEST(Compile, WrongBindingsAreErrors) {
  const graph::Graph g = small_network();
  Engine engine(options());
  const auto program = engine.compile(g, {});
  EXPECT_THROW(program->run(), Error);
  EXPECT_THROW(program->bind("w1", std::make_shared<DeviceTensor>(engine.device(), f32({24, 40}))), Error);
}

TEST(Compile, ExplainsItself) {
  const graph::Graph g = small_network();
  Engine engine(options());
  const auto program = run_once(engine, g, random_inputs(g, 7));
  const std::string text = program->explain();
  EXPECT_NE(text.find("GFLOP/s"), std::string::npos) << text;
  EXPECT_NE(text.find("1 runs"), std::string::npos) << text;
  EXPECT_NE(text.find("w1 f32: dot "), std::string::npos) << text;
  EXPECT_GT(program->report().kernels, 0);
  EXPECT_EQ(program->report().compiled + program->report().cached, program->report().kernels);
}

}  // namespace
}  // namespace lumen::run
