// Needs: nothing. Single elements of groups against the graph's evaluator, and operands against the codec.
#include "run/engine/verify/launch_trial/sampled.h"

#include <gtest/gtest.h>

#include "graph/pipeline/pipeline.h"
#include "number/codec/codec.h"
#include "number/library/library.h"
#include "tests/run/graphs.h"

namespace lumen::run {
namespace {

using graph::Builder;
using graph::Graph;
using graph::Role;
using graph::ValueId;

// An operand as the evaluator takes it, of the bytes that the device is given.
Tensor whole(const Operand& operand, const Type& type) {
  Tensor t{type, {}, {}};
  if (type.element.format) {
    t.blob.resize(static_cast<size_t>(graph::byte_size(type)));
    operand.write(0, std::ssize(t.blob), t.blob.data());
    return t;
  }
  for (int64_t i = 0; i < graph::elements(type.shape).number(); ++i) t.values.push_back(operand.number(i));
  return t;
}

// Every element of every result of a graph that is one group; what is known, and how many of them.
void expect_equal(const Graph& g, double least_known = 1) {
  const graph::Pipeline pipeline = graph::run_pipeline(g, {}, {});
  const graph::Plan& plan = pipeline.plan;
  ASSERT_EQ(plan.groups.size(), 1U) << graph::print(plan.graph);
  const Operands operands(plan.graph, plan.groups[0], false);
  std::map<std::string, Tensor> inputs;
  for (const ValueId v : plan.graph.inputs())
    inputs[plan.graph[v].attributes.name] = whole(operands[v], plan.graph[v].type);
  const std::vector<Tensor> expected = graph::eval(plan.graph, inputs);
  Sampled sampled(plan.graph, plan.groups[0], operands, {});
  for (size_t r = 0; r < expected.size(); ++r) {
    const ValueId v = plan.graph.results[r];
    Tensor numbers = expected[r];
    if (const FormatRef& f = numbers.type.element.format) {
      const int64_t columns = numbers.type.shape.back().number();
      const std::vector<float> x =
          decode(*f, numbers.blob, graph::elements(numbers.type.shape).number() / columns, columns);
      numbers.values.assign(x.begin(), x.end());
    }
    int64_t known = 0;
    for (size_t i = 0; i < numbers.values.size(); ++i) {
      const Bounded got = sampled.element(v, static_cast<int64_t>(i));
      if (!got.known()) continue;
      ++known;
      EXPECT_NEAR(got.value, numbers.values[i], got.error + 1e-6 * std::abs(numbers.values[i])) << "element " << i;
      EXPECT_LE(got.error, 0.02 * std::max(1.0, std::abs(got.value))) << "a bound that says nothing";
    }
    EXPECT_GE(double(known), least_known * double(numbers.values.size()));
  }
}

Graph with_result(Graph g, ValueId v) {
  g.results = {v};
  g.result_names = {"r"};
  return g;
}

Type held(const char* format, std::vector<int64_t> dims) {
  Type t = f32(std::move(dims));
  t.element.format = FormatLibrary::builtin().get(format);
  return t;
}

TEST(Sampled, Products) {
  for (const char* format : {"q4_0", "q4_k", "int8_row"}) {
    Graph g;
    Builder b(g);
    const ValueId x = b.input("x", Role::data, f32({3, 256})),
                  w = b.cast(b.input("w", Role::parameter, held(format, {24, 256})), {Scalar::f32, nullptr});
    const ValueId y = b.contract(x, w, "mk", "nk", "mn");
    expect_equal(with_result(g, b.mul(y, b.unary(ScalarOp::tanh_, y))));
  }
}

TEST(Sampled, RowsAndMoves) {
  {
    Graph g;
    Builder b(g);
    const ValueId x = b.input("x", Role::data, f32({9, 33}));
    const ValueId e = b.unary(ScalarOp::exp_, b.sub(x, b.reduce(x, graph::Reduction::max, {1})));
    expect_equal(with_result(g, b.div(e, b.reduce(e, graph::Reduction::sum, {1}))));
  }
  {
    Graph g;
    Builder b(g);
    const ValueId table = b.input("table", Role::parameter, f32({13, 8}));
    expect_equal(with_result(g, b.gather(table, b.input("index", Role::data, scalars(Scalar::i32, {5, 7})))));
  }
  {
    Graph g;
    Builder b(g);
    const ValueId x = b.input("x", Role::data, f32({35, 8}));
    expect_equal(with_result(
        g, b.scatter_add(x, b.input("index", Role::data, scalars(Scalar::i32, {35})), graph::Dim(int64_t{13}))));
  }
  {
    Graph g;
    Builder b(g);
    const ValueId x = b.input("x", Role::data, f32({3, 8})), y = b.input("y", Role::data, f32({4, 8}));
    expect_equal(with_result(g, b.concat({x, y}, 0)));
  }
}

TEST(Sampled, CodesAndPlaces) {
  for (const char* format : {"q8_0", "mxfp4"}) {
    Graph g;
    Builder b(g);
    expect_equal(with_result(g, b.cast(b.input("x", Role::data, f32({4, 96})), held(format, {}).element)));
  }
  Graph g;
  Builder b(g);
  const ValueId cache = b.input("cache", Role::state, f32({16, 8}));
  const ValueId rows = b.input("rows", Role::data, f32({2, 8})),
                at = b.input("at", Role::data, scalars(Scalar::i32, {}));
  expect_equal(with_result(g, b.update(cache, rows, {at, b.constant(scalars(Scalar::i32, {}), {0})})));
}

// Whatever lies in the operand, its numbers are those that the codec reads there.
TEST(Sampled, OperandsAreWhatTheCodecReads) {
  for (const char* format : {"q4_0", "q6_k", "nvfp4", "int8_row", "f16"}) {
    Graph g;
    Builder b(g);
    const Type type = held(format, {70, 512});
    g.results = {b.cast(b.input("w", Role::parameter, type), {Scalar::f32, nullptr})};
    g.result_names = {"r"};
    graph::Group group;
    group.inputs = {0};
    group.nodes = {1};
    const Operands operands(g, group, false);
    const std::vector<float> x = decode(*type.element.format, whole(operands[0], type).blob, 70, 512);
    int64_t zeros = 0;
    for (size_t i = 0; i < x.size(); ++i) {
      ASSERT_EQ(x[i], float(operands[0].number(int64_t(i)))) << format << " " << i;
      zeros += x[i] == 0 ? 1 : 0;
    }
    EXPECT_LT(zeros, std::ssize(x) / 2) << format;
  }
}

}  // namespace
}  // namespace lumen::run
