// Needs: cpu. Scans as loops: results and gradients as code against the graph evaluator, looped against unrolled, and
// code that does not grow with the number of steps.
#include <gtest/gtest.h>

#include <random>

#include "graph/grad/reverse.h"
#include "graph/pipeline/pipeline.h"
#include "graph/steps/steps.h"
#include "number/codec/codec.h"
#include "number/library/library.h"
#include "tests/run/functions.h"
#include "tests/run/graphs.h"

namespace lumen::run {
namespace {

using graph::Graph;
using graph::ValueId;

// The gradients by all float inputs of the sum of a function's results, each element with a weight of its own.
Graph stepped_gradients(Graph g) {
  graph::hoist_steps(g);
  graph::Builder b(g);
  const std::vector<ValueId> results = g.results;
  std::vector<ValueId> inputs;
  for (const ValueId v : g.inputs())
    if (is_float(b.type(v).element.scalar)) inputs.push_back(v);
  ValueId loss = b.scalar(0);
  for (size_t k = 0; k < results.size(); ++k) {
    const ValueId weights = b.input(fmt::format("weights{}", k), graph::Role::data, b.type(results[k]));
    std::vector<int> axes;
    for (size_t d = 0; d < b.type(weights).shape.size(); ++d) axes.push_back(static_cast<int>(d));
    loss = b.add(loss, b.reshape(b.reduce(b.mul(results[k], weights), graph::Reduction::sum, axes), {}));
    g.result_names[k] = fmt::format("y{}", k);
  }
  const std::vector<ValueId> gradients = graph::differentiate(g, loss, inputs);
  for (size_t i = 0; i < inputs.size(); ++i) {
    g.results.push_back(gradients[i]);
    g.result_names.push_back("d_" + g[inputs[i]].attributes.name);
  }
  return g;
}

void expect_of_range(const std::vector<float>& got, const std::vector<double>& want, double part) {
  double range = 1e-3;
  for (const double x : want) range = std::max(range, std::abs(x));
  ASSERT_EQ(got.size(), want.size());
  for (size_t k = 0; k < got.size(); ++k) ASSERT_NEAR(got[k], want[k], part * range) << k;
}

void check_steps(const std::string& text) {
  SCOPED_TRACE(text);
  const Graph g = stepped_gradients(function_of(text));
  const auto inputs = random_inputs(g, 7);
  const std::vector<Tensor> want = graph::eval(g, inputs);
  Engine engine(options());
  const auto program = run_once(engine, g, inputs);
  for (size_t i = 0; i < want.size(); ++i) {
    SCOPED_TRACE(g.result_names[i]);
    expect_of_range(floats_of(program->result(g.result_names[i])), want[i].values, 1e-5);
  }
}

constexpr const char* kGru =
    "fn f(x: f32[{0}, {1}, {2}], h: f32[{0}, {3}], w: f32[3 * {3}, {2}], u: f32[3 * {3}, {3}], b: f32[3 * {3}], "
    "c: f32[3 * {3}]) = ";

std::string gru_of(int batch, int steps, int width, int hidden, const std::string& body) {
  return fmt::format(fmt::runtime(kGru), batch, steps, width, hidden) + body;
}

TEST(Scan, CellsAndTheirGradients) {
  check_steps(gru_of(3, 6, 10, 8, "gru(x, h, w, u, b, c)"));
  check_steps(gru_of(16, 5, 4, 16, "gru(x, h, w, u, b, c)"));  // histories lie one behind the other
  check_steps(gru_of(1, 1, 3, 5, "gru(x, h, w, u, b, c)"));
  check_steps(
      "fn f(x: f32[2, 7, 5], h: f32[2, 6], m: f32[2, 6], w: f32[24, 5], u: f32[24, 6], b: f32[24], c: f32[24]) = "
      "lstm(x, h, m, w, u, b, c)");
  check_steps(
      "fn f(x: f32[8, 4, 5], h: f32[8, 8], m: f32[8, 8], w: f32[32, 5], u: f32[32, 8], b: f32[32], c: f32[32]) = "
      "lstm(x, h, m, w, u, b, c)");
}

TEST(Scan, EveryKindOfResult) {
  // Backwards, an output that is what a step began with, one that no carry is, and an integer carry.
  check_steps(
      "fn step(h: f32[4, 4], n: i32, x: f32[4], k: f32[4, 4]) -> f32[4, 4], i32, f32[4, 4], f32[4] {\n"
      "  let next = h * 0.5 + reshape(x, [4, 1]) * k\n"
      "  return next, n + 1, h, sum(next * next, -1)[:, 0] * f32(n)\n"
      "}\n"
      "fn f(h: f32[4, 4], x: f32[4, 5], k: f32[4, 4]) -> f32[4, 4], f32[4, 5, 4], f32[4, 5] {\n"
      "  let (last, n, before, sums) = scan(step, [h, broadcast(1, [])], [x], k, axis = 1, reverse = 1)\n"
      "  return last, before, sums\n"
      "}\n");
  // Without a carry; a carry that stays; one made of another.
  check_steps(
      "fn step(x: f32[6], k: f32[6]) = x * sin(k * x)\n"
      "fn f(x: f32[3, 6], k: f32[6]) = scan(step, [], [x], k)\n");
  check_steps(
      "fn step(a: f32[5], b: f32[5], c: f32[5], x: f32[5]) -> f32[5], f32[5], f32[5], f32[5] {\n"
      "  return b, a * x, c, a + c * x\n"
      "}\n"
      "fn f(a: f32[5], b: f32[5], c: f32[5], x: f32[4, 5]) -> f32[5], f32[5], f32[4, 5] {\n"
      "  let (p, q, s, y) = scan(step, [a, b, c], [x])\n"
      "  return p, q, y\n"
      "}\n");
}

TEST(Scan, ScansInScans) {
  check_steps(
      "fn inner(h: f32[4], x: f32[4], w: f32[4, 4]) -> f32[4], f32[4] {\n"
      "  n[i] = sum(j) w[i, j] * h[j]\n"
      "  let next = tanh(n + x)\n"
      "  return next, next\n"
      "}\n"
      "fn outer(h: f32[4], rows: f32[3, 4], w: f32[4, 4]) -> f32[4], f32[3, 4] {\n"
      "  let (last, all) = scan(inner, [h], [rows], w)\n"
      "  return last, all\n"
      "}\n"
      "fn f(h: f32[4], x: f32[5, 3, 4], w: f32[4, 4]) -> f32[4], f32[5, 3, 4] {\n"
      "  let (last, all) = scan(outer, [h], [x], w)\n"
      "  return last, all\n"
      "}\n");
}

// The same cell written out step by step.
std::string unrolled_gru(int batch, int steps, int width, int hidden) {
  std::string body = "{\n  var now = h\n";
  for (int t = 0; t < steps; ++t) {
    body += fmt::format("  now = gru_cell(x[:, {}, :], now, w, u, b, c)\n", t);
    body += t == 0 ? fmt::format("  var all = reshape(now, [{}, 1, {}])\n", batch, hidden)
                   : fmt::format("  all = concat(all, reshape(now, [{}, 1, {}]), axis = 1)\n", batch, hidden);
  }
  std::string head = fmt::format(fmt::runtime(kGru), batch, steps, width, hidden);
  return head.substr(0, head.size() - 2) + body + "  return all\n}\n";
}

TEST(Scan, LoopedIsUnrolled) {
  const Graph looped = stepped_gradients(function_of(gru_of(4, 9, 6, 8, "gru(x, h, w, u, b, c)")));
  const Graph unrolled = stepped_gradients(function_of(unrolled_gru(4, 9, 6, 8)));
  const auto inputs = random_inputs(looped, 3);
  Engine engine(options());
  const auto a = run_once(engine, looped, inputs), b = run_once(engine, unrolled, inputs);
  for (const std::string& name : looped.result_names) {
    SCOPED_TRACE(name);
    const std::vector<float> want = floats_of(b->result(name));
    expect_of_range(floats_of(a->result(name)), {want.begin(), want.end()}, 1e-5);
  }
}

TEST(Scan, SameBitsForAnyNumberOfThreads) {
  const Graph g = stepped_gradients(function_of(gru_of(16, 12, 24, 32, "gru(x, h, w, u, b, c)")));
  const auto inputs = random_inputs(g, 5);
  std::vector<std::vector<uint8_t>> first;
  for (const int threads : {1, 2, 3}) {
    Engine engine(options("off", threads));
    const auto program = run_once(engine, g, inputs);
    for (int run = 0; run < 2; ++run) {
      for (size_t k = 0; k < g.result_names.size(); ++k) {
        const std::vector<uint8_t> bytes = bytes_of(program->result(g.result_names[k]));
        if (first.size() == k) first.push_back(bytes);
        EXPECT_EQ(bytes, first[k]) << g.result_names[k];
      }
      program->run();
    }
  }
}

// Products of steps read weights as they are stored.
TEST(Scan, WeightsInFormats) {
  const Graph g = function_of(gru_of(4, 6, 32, 64, "gru(x, h, w, u, b, c)"));
  for (const char* name : {"q8_0", "q4_0"}) {
    SCOPED_TRACE(name);
    const FormatRef f = FormatLibrary::builtin().get(name);
    CompileOptions compile;
    compile.exact = true;
    compile.assignments = {{graph::FormatAssignment::What::stored, "u", f, FieldSource::fitted},
                           {graph::FormatAssignment::What::stored, "w", f, FieldSource::fitted}};
    const graph::Pipeline pipeline = graph::run_pipeline(g, compile.assignments, {});
    bool stored = false;
    for (const graph::Node& n : pipeline.plan.graph.nodes)
      for (const ValueId o : n.operands)
        stored = stored || (n.op == graph::Op::scan_ && pipeline.plan.graph[o].type.element.format);
    EXPECT_TRUE(stored);
    auto inputs = random_inputs(g, 9), decoded = inputs;
    for (const char* weight : {"u", "w"}) {
      const int64_t rows = 192, columns = std::string(weight) == "u" ? 64 : 32;
      Tensor& t = inputs.at(weight);
      t.blob = encode(*f, std::vector<float>(t.values.begin(), t.values.end()), rows, columns, {});
      t.type.element.format = f;
      t.values.clear();
      const std::vector<float> back = decode(*f, t.blob, rows, columns);
      decoded.at(weight).values.assign(back.begin(), back.end());
    }
    Engine engine(options());
    const auto program = run_once(engine, g, inputs, compile);
    expect_of_range(floats_of(program->result(g.result_names[0])), graph::eval(g, decoded)[0].values, 1e-5);
  }
}

graph::ProductType formats(const std::string& activation, const std::string& weight, const std::string& gradient) {
  const FormatLibrary library = FormatLibrary::builtin();
  graph::ProductType type;
  type.formats.fill({library.get(activation), library.get(weight), library.get(gradient)});
  return type;
}

// A cell in a recipe's formats, forward and backward: kernels of steps give what the evaluator gives.
TEST(Scan, OperandsInFormats) {
  Graph g = stepped_gradients(function_of(gru_of(16, 6, 32, 32, "gru(x, h, w, u, b, c)")));
  for (const char* weight : {"w", "u"}) g[g.find_input(weight)].attributes.role = graph::Role::parameter;
  graph::ProductType delayed = formats("fp8_tensor", "fp8_tensor", "fp8_e5m2_tensor");
  delayed.sources = {FieldSource::delayed, FieldSource::delayed, FieldSource::delayed, 4};
  for (const graph::ProductType& type :
       {graph::ProductType(Scalar::bf16), formats("int8_row", "int8_row", "int8_row"),
        formats("fp8_e4m3", "fp8_e4m3", "fp8_e5m2"), formats("mxfp8_e4m3", "fp8_tile", "fp8_e5m2_row"), delayed}) {
    const Graph rounded = graph::with_rounded_products(g, {}, {}, type);
    auto inputs = random_inputs(rounded, 7);
    for (const char* name : {"w", "u"})
      for (double& x : inputs.at(name).values) x *= 0.2;
    for (auto& [name, t] : inputs)
      if (name.starts_with(graph::kHistoryState)) t.values.assign(t.values.size(), 2);
    std::map<std::string, Tensor> states;
    const std::vector<Tensor> want = graph::eval(rounded, inputs, {}, &states);
    Engine engine(options());
    CompileOptions compile;
    compile.products = type;
    const auto program = engine.compile(g, compile);
    std::map<std::string, DeviceTensorRef> bound;
    for (const std::string& name : program->input_names())
      program->bind(name, bound[name] = upload(engine, inputs.at(name)));
    program->run();
    for (size_t i = 0; i < want.size(); ++i) {
      SCOPED_TRACE(g.result_names[i]);
      const std::vector<float> got = floats_of(program->result(g.result_names[i]));
      double size = 1e-3, far = 0;
      for (const double x : want[i].values) size = std::max(size, std::abs(x));
      for (size_t k = 0; k < got.size(); ++k) far = std::max(far, std::abs(got[k] - want[i].values[k]));
      // The last bit of a sum moves a code here and there.
      EXPECT_LT(far, 0.04 * size);
    }
    for (const auto& [name, t] : states) expect_of_range(floats_of(bound.at(name)), t.values, 1e-2);
  }
}

// A step of training, by a recipe, on made-up data: the sum of what was seen so far has to be told at the end.
TEST(Scan, ARecipeTrainsACell) {
  constexpr int kBatch = 32, kSteps = 6, kHidden = 16;
  Graph g = function_of(fmt::format(
      "fn f(x: f32[{0}, {1}, 16], told: f32[{0}, 1], w: f32[3 * {2}, 16], u: f32[3 * {2}, {2}], b: f32[3 * {2}], "
      "last: f32[16, {2}]) -> f32[] {{\n"
      "  let all = gru(x, broadcast(0.0, [{0}, {2}]), w, u, b, b)\n"
      "  let away = linear(all[:, {1} - 1, :], last)[:, 0:1] - told\n"
      "  return mean(away * away, 0)[0, 0]\n}}\n",
      kBatch, kSteps, kHidden));
  graph::TrainingStep descent;
  descent.name = "descent";
  descent.trained.most_logits = [](const Graph&) { return int64_t{1} << 20; };
  const auto parameters = [](const Graph& of) {
    std::vector<ValueId> values;
    for (const char* name : {"w", "u", "b", "last"}) values.push_back(of.find_input(name));
    return values;
  };
  for (const ValueId v : parameters(g)) g[v].attributes.role = graph::Role::parameter;
  descent.parameters = parameters;
  descent.update = [parameters](Graph& of, const std::vector<ValueId>& gradients) {
    const std::vector<ValueId> values = parameters(of);
    graph::Builder b(of);
    for (size_t i = 0; i < values.size(); ++i)
      b.update(values[i], b.sub(values[i], b.mul(gradients[i], b.scalar(0.1))));
  };
  g.result_names = {"loss"};
  const Graph step = graph::training_graph(g, {}, descent);
  graph::ProductType delayed = formats("fp8_tensor", "fp8_tensor", "fp8_e5m2_tensor");
  delayed.sources = {FieldSource::delayed, FieldSource::delayed, FieldSource::delayed, 4};
  for (const graph::ProductType& type : {formats("int8_row", "int8_row", "int8_row"), delayed}) {
    Engine engine(options());
    CompileOptions compile;
    compile.products = type;
    const auto program = engine.compile(step, compile);
    std::mt19937 random(4);
    std::normal_distribution<float> normal;
    std::map<std::string, DeviceTensorRef> bound;
    for (const std::string& name : program->input_names()) {
      Tensor t = random_tensor(program->input_type(name), name.size());
      for (double& x : t.values) x = name.starts_with(graph::kHistoryState) ? 0 : 0.2 * normal(random);
      program->bind(name, bound[name] = upload(engine, t));
    }
    double first = 0, last = 0;
    for (int n = 0; n < 120; ++n) {
      Tensor x = random_tensor(program->input_type("x"), n), told = random_tensor(program->input_type("told"), n);
      for (int i = 0; i < kBatch; ++i) {
        told.values[i] = 0;
        for (int t = 0; t < kSteps; ++t) told.values[i] += 0.3 * x.values[(i * kSteps + t) * 16];
      }
      for (const auto& [name, t] : {std::pair{"x", x}, {"told", told}}) {
        const std::vector<uint8_t> bytes = to_bytes(t);
        bound.at(name)->upload(bytes.data(), std::ssize(bytes));
      }
      program->run();
      (n < 10 ? first : last) += (n < 10 || n >= 110) ? floats_of(program->result("loss"))[0] / 10 : 0;
    }
    EXPECT_LT(last, 0.5 * first);
    EXPECT_GT(first, 0.1);
  }
}

TEST(Scan, CodeDoesNotGrowWithSteps) {
  std::vector<int64_t> kernels;
  for (const int steps : {4, 64}) {
    Engine engine(options());
    const Graph g = stepped_gradients(function_of(gru_of(4, steps, 8, 8, "gru(x, h, w, u, b, c)")));
    kernels.push_back(std::ssize(engine.compile(g, {})->times()));
  }
  EXPECT_EQ(kernels[0], kernels[1]);
}

}  // namespace
}  // namespace lumen::run
