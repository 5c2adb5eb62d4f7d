#include "run/engine/family_check.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/error.h"
#include "graph/grad/reverse.h"
#include "graph/ir/build.h"
#include "graph/ir/random.h"

namespace lumen::run {
namespace {

using graph::Builder;
using graph::Graph;
using graph::Reduction;
using graph::Role;
using graph::Tensor;
using graph::Type;
using graph::ValueId;

constexpr double kSums = 1e-5;       // sums in another order
constexpr double kFunctions = 1e-4;  // exp, tanh and their kin besides

Type type_of(std::vector<int64_t> dims, Scalar scalar = Scalar::f32) {
  Type t;
  for (const int64_t d : dims) t.shape.emplace_back(d);
  t.element.scalar = scalar;
  return t;
}

// -1 .. 1, or numbers of rows below `limit`; the same each time.
Tensor filled(const Type& type, uint32_t seed, int64_t limit) {
  Tensor t;
  t.type = type;
  t.values.resize(graph::elements(type.shape).number());
  for (size_t i = 0; i < t.values.size(); ++i) {
    const double u = graph::uniform_random(seed, 1, i);
    t.values[i] = limit > 0 ? std::min<double>(std::floor(u * limit), limit - 1) : static_cast<float>(2 * u - 1);
  }
  return t;
}

// What a family is shown: a graph, which of its results counts, and how near it must come.
struct Trial {
  const char* family;
  double tolerance;
  Graph graph;
  size_t result = 0;
};

constexpr int64_t kRows = 13;  // of tables

Trial map_trial() {
  Trial t{"map", kFunctions, {}, 0};
  Builder b(t.graph);
  const ValueId x = b.input("x", Role::data, type_of({7, 37})), y = b.input("y", Role::data, type_of({37}));
  t.graph.results = {b.unary(ScalarOp::tanh_, b.add(b.mul(x, y), b.scalar(0.25)))};
  return t;
}

Trial reduce_trial() {
  Trial t{"reduce", kFunctions, {}, 0};
  Builder b(t.graph);
  const ValueId x = b.input("x", Role::data, type_of({19, 301}));
  const ValueId e = b.unary(ScalarOp::exp_, b.sub(x, b.reduce(x, Reduction::max, {1})));
  t.graph.results = {b.div(e, b.reduce(e, Reduction::sum, {1}))};
  return t;
}

Trial dot_trial(int64_t rows, const char* family) {
  Trial t{family, kSums, {}, 0};
  Builder b(t.graph);
  const ValueId x = b.input("x", Role::data, type_of({rows, 203})),
                w = b.input("w", Role::parameter, type_of({53, 203}));
  t.graph.results = {b.add(b.contract(x, w, "mk", "nk", "mn"), b.input("bias", Role::parameter, type_of({53})))};
  return t;
}

Trial move_trial() {
  Trial t{"move", 0, {}, 0};
  Builder b(t.graph);
  const ValueId table = b.input("table", Role::parameter, type_of({kRows, 24}));
  const ValueId rows = b.gather(table, b.input("index", Role::data, type_of({5, 7}, Scalar::i32)));
  t.graph.results = {
      b.concat({b.permute(rows, {1, 0, 2}), b.permute(b.input("y", Role::data, type_of({3, 7, 24})), {1, 0, 2})}, 1)};
  return t;
}

Trial scatter_trial() {
  Trial t{"move: scatter", kSums, {}, 0};
  Builder b(t.graph);
  const ValueId x = b.input("x", Role::data, type_of({35, 24}));
  t.graph.results = {b.scatter_add(x, b.input("index", Role::data, type_of({35}, Scalar::i32)), graph::Dim(kRows))};
  return t;
}

// Causal attention with two heads on one key head; its gradient with respect to the queries.
Trial attend_trial(bool gradient) {
  Trial t{gradient ? "attend gradient" : "attend", kFunctions, {}, gradient ? size_t{1} : size_t{0}};
  Builder b(t.graph);
  const int64_t length = 21, depth = 16;
  const ValueId q = b.input("q", Role::data, type_of({1, length, 1, 2, depth}));
  const ValueId k = b.input("k", Role::data, type_of({1, length, 1, depth}));
  const ValueId v = b.input("v", Role::data, type_of({1, length, 1, depth}));
  const Type square = type_of({length, length}, Scalar::i32);
  const ValueId seen = b.binary(ScalarOp::le_, b.iota(square, 1), b.iota(square, 0));
  ValueId s = b.mul(b.contract(q, k, "btgrd", "bsgd", "bgrts"), b.scalar(0.25));
  s = b.select(seen, s, b.scalar(-1e30));
  const ValueId e = b.unary(ScalarOp::exp_, b.sub(s, b.reduce(s, Reduction::max, {4})));
  const ValueId o = b.contract(b.div(e, b.reduce(e, Reduction::sum, {4})), v, "bgrts", "bsgd", "btgrd");
  t.graph.results = {o};
  if (!gradient) return t;
  const ValueId weight = b.input("weight", Role::data, type_of({1, length, 1, 2, depth}));
  const ValueId loss = b.reshape(b.reduce(b.mul(o, weight), Reduction::sum, {0, 1, 2, 3, 4}), {});
  t.graph.results = {loss, graph::differentiate(t.graph, loss, {q})[0]};
  return t;
}

// The bytes of a tensor in its element's type.
std::vector<uint8_t> bytes_of(const Tensor& t) {
  if (t.type.element.format) return t.blob;
  std::vector<uint8_t> out(t.values.size() * 4);
  for (size_t i = 0; i < t.values.size(); ++i) {
    const auto number = static_cast<int32_t>(t.values[i]);
    const auto real = static_cast<float>(t.values[i]);
    std::memcpy(out.data() + 4 * i, t.type.element.scalar == Scalar::i32 ? static_cast<const void*>(&number) : &real,
                4);
  }
  return out;
}

}  // namespace

CheckLine compare_with_oracle(Engine& engine, const std::string& what, const Graph& g,
                              const std::map<std::string, Tensor>& inputs, size_t result_index, double tolerance) {
  CheckLine line;
  line.what = what;
  line.machine = engine.device().machine().name;
  const std::vector<Tensor> expected = graph::eval(g, inputs);
  CompileOptions options;
  options.exact = true;
  const auto program = engine.compile(g, options);
  for (const auto& [name, t] : inputs) {
    const auto device = std::make_shared<DeviceTensor>(engine.device(), t.type);
    const std::vector<uint8_t> bytes = bytes_of(t);
    device->upload(bytes.data(), bytes.size());
    program->bind(name, device);
  }
  program->run();
  const Tensor& want = expected[result_index];
  std::vector<float> got(want.values.size());
  program->result(g.result_names[result_index])->download(got.data(), got.size() * sizeof(float));
  double largest = 0, worst = 0;
  for (const double v : want.values) largest = std::max(largest, std::abs(v));
  for (size_t i = 0; i < got.size(); ++i) {
    const double d = std::abs(got[i] - want.values[i]);
    if (!(d <= worst)) worst = d;
  }
  line.ok = worst <= tolerance * std::max(largest, 1e-30);
  line.detail = fmt::format("largest difference {:.2e} of {:.2e}", worst, largest);
  return line;
}

std::vector<CheckLine> check_families(Engine& engine) {
  std::vector<Trial> trials;
  trials.push_back(map_trial());
  trials.push_back(reduce_trial());
  trials.push_back(dot_trial(1, "dot, one row"));
  trials.push_back(dot_trial(29, "dot"));
  trials.push_back(attend_trial(false));
  trials.push_back(attend_trial(true));
  trials.push_back(move_trial());
  trials.push_back(scatter_trial());
  std::vector<CheckLine> lines;
  for (Trial& t : trials) {
    for (size_t i = 0; i < t.graph.results.size(); ++i) t.graph.result_names.push_back(fmt::format("r{}", i));
    std::map<std::string, Tensor> inputs;
    uint32_t seed = 1;
    for (const ValueId v : t.graph.inputs()) {
      const graph::Node& n = t.graph[v];
      inputs[n.attributes.name] = filled(n.type, ++seed, n.type.element.scalar == Scalar::i32 ? kRows : 0);
    }
    try {
      lines.push_back(compare_with_oracle(engine, t.family, t.graph, inputs, t.result, t.tolerance));
    } catch (const Error& error) {
      lines.push_back({t.family, engine.device().machine().name, false, error.what(), false});
    }
  }
  return lines;
}

}  // namespace lumen::run
