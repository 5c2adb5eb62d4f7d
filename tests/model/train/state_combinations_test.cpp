// needs: cpu. Every level of scale and rounding that a recipe can name for what lies between steps and between ranks:
// moments, parameters, what rounding loses of them, sums of gradients. Each has kernels for machines and gives what the
// evaluator gives, or is refused in words that say why. Some of them by default (combination_case.h).
#include <gtest/gtest.h>

#include "model/recipe/optimizer/optimizer.h"
#include "model/train/ranks/rank_graphs.h"
#include "number/facts/facts.h"
#include "number/formula/scalar.h"
#include "number/gradient/stochastic.h"
#include "tests/graph/blocks.h"
#include "tests/model/train/combination_case.h"

namespace lumen::model::train {
namespace {

using graph::Builder;
using graph::Graph;
using graph::ValueId;

constexpr int64_t kTokens = 32, kIn = 128, kOut = 64;

arch::Parameter weight() {
  arch::Parameter p;
  p.name = "w";
  p.shape = {kOut, kIn};
  p.role = "ffn_up";
  return p;
}

Graph loss() {
  Graph g;
  Builder b(g);
  const ValueId x = b.input("x", graph::Role::data, run::f32({kTokens, kIn}));
  const ValueId w = b.input("w", graph::Role::parameter, run::f32({kOut, kIn}));
  const ValueId y = b.unary(ScalarOp::sin_, b.contract(x, w, "mk", "nk", "mn"));
  g.results = {b.reshape(b.reduce(b.mul(y, y), graph::Reduction::sum, {0, 1}), {})};
  g.result_names = {"loss"};
  return g;
}

bool is_short(const graph::Element& e) {
  return !e.format && scalar_bytes(e.scalar) == 2;
}

std::vector<uint8_t> bytes_as_held(const graph::Tensor& t) {
  if (!is_short(t.type.element)) return run::to_bytes(t);
  std::vector<uint8_t> out(2 * t.values.size());
  for (size_t i = 0; i < t.values.size(); ++i) {
    const auto x = static_cast<float>(t.values[i]);
    const uint16_t half = t.type.element.scalar == Scalar::bf16 ? f32_to_bf16(x) : f32_to_f16(x);
    std::memcpy(out.data() + 2 * i, &half, sizeof half);
  }
  return out;
}

graph::Tensor as_tensor(const graph::Type& type, const std::vector<uint8_t>& bytes) {
  graph::Tensor t{type, {}, {}};
  if (type.element.format) {
    t.blob = bytes;
    return t;
  }
  const int64_t count = graph::elements(type.shape).number();
  for (int64_t i = 0; i < count; ++i) {
    float x = 0;
    uint16_t half = 0;
    if (is_short(type.element))
      std::memcpy(&half, bytes.data() + 2 * i, sizeof half);
    else
      std::memcpy(&x, bytes.data() + 4 * i, sizeof x);
    if (is_short(type.element)) x = type.element.scalar == Scalar::bf16 ? bf16_to_f32(half) : f16_to_f32(half);
    t.values.push_back(x);
  }
  return t;
}

std::vector<double> decoded(const graph::Tensor& t) {
  if (!t.type.element.format) return t.values;
  const int64_t columns = t.type.shape.back().number(), rows = graph::elements(t.type.shape).number() / columns;
  const std::vector<float> numbers = decode(*t.type.element.format, t.blob, rows, columns);
  return {numbers.begin(), numbers.end()};
}

// A step of AdamW on a matrix, as its kernels and the evaluator leave its parameter and states.
void expect_updates(const recipe::OptimizerSettings& settings, MachineKernels& machines, const std::string& what) {
  const recipe::Optimizer optimizer(*test_library(), settings);
  const std::vector<arch::Parameter> trained = {weight()};
  const recipe::Holding held = holding_of(trained, optimizer.held());
  const Graph step = training_step(loss(), trained, optimizer, held);
  std::map<std::string, graph::Tensor> inputs;
  uint64_t seed = 3;
  std::map<std::string, double> numbers;
  for (const auto& [name, value] : optimizer.numbers(3, 1e-2)) numbers[name] = value;
  for (const ValueId v : step.inputs()) {
    const auto& [name, type] = std::pair(step[v].attributes.name, step[v].type);
    graph::Tensor t{type, {}, {}};
    if (numbers.contains(name)) {
      t.values = {static_cast<float>(numbers.at(name))};
    } else if (type.element.scalar == Scalar::u32) {
      t.values = {17};
    } else {
      // Second moments are not negative.
      t = run::random_tensor({type.shape, {}}, ++seed);
      for (double& x : t.values) x = name == "x" ? x : static_cast<float>(0.1 * std::abs(x));
      t.type = type;
      if (type.element.format) {
        const std::vector<float> f(t.values.begin(), t.values.end());
        const int64_t columns = type.shape.back().number();
        t.blob = encode(*type.element.format, f, std::ssize(f) / columns, columns);
        t.values.clear();
      } else if (type.element.scalar != Scalar::f32) {
        for (double& x : t.values) x = std::ldexp(std::round(std::ldexp(x, 8)), -8);  // few digits
      }
    }
    inputs[name] = std::move(t);
  }
  std::map<std::string, graph::Tensor> after;
  (void)graph::eval(step, inputs, {}, &after);
  run::CompileOptions options;
  options.exact = true;
  const auto program = engine().compile(step, options);
  std::map<std::string, run::DeviceTensorRef> bound;
  for (const std::string& name : program->input_names()) {
    bound[name] = std::make_shared<run::DeviceTensor>(engine().device(), inputs.at(name).type);
    const std::vector<uint8_t> bytes = bytes_as_held(inputs.at(name));
    bound[name]->upload(bytes.data(), std::ssize(bytes));
    program->bind(name, bound[name]);
  }
  program->run();
  int compared = 0;
  for (const auto& [name, want] : after) {
    if (graph::elements(want.type.shape).number() < 16) continue;
    const std::vector<double> a = decoded(as_tensor(want.type, run::bytes_of(bound.at(name)))), b = decoded(want);
    ASSERT_EQ(a.size(), b.size());
    double size = 0, wrong = 0;
    for (const double v : b) size = std::max(size, std::abs(v));
    // A number that lies between two codes falls to either by a last bit.
    for (size_t i = 0; i < a.size(); ++i) wrong += std::abs(a[i] - b[i]) > 1e-5 * size;
    EXPECT_LE(wrong, 0.02 * static_cast<double>(a.size())) << what << ": " << name;
    ++compared;
  }
  EXPECT_GE(compared, 3) << what;
  machines.synthesize(step, options, what);
}

TEST(StateCombinations, Moments) {
  MachineKernels machines;
  for (const LevelOfScale& level : levels_of_scale())
    for (const std::string& name : level.formats) {
      recipe::OptimizerSettings settings;
      settings.moments = name;
      expect_updates(settings, machines, "moments in " + name);
    }
}

TEST(StateCombinations, Parameters) {
  MachineKernels machines;
  std::vector<LevelOfScale> levels = levels_of_scale();
  levels.push_back({"none", {"bf16", "f16"}});
  for (const LevelOfScale& level : levels)
    for (const std::string& name : level.formats)
      for (const char* rounding : {"nearest", "stochastic"}) {
        recipe::OptimizerSettings settings;
        settings.held = {name, rounding, "none"};
        const std::string what = fmt::format("parameters in {}, {}", name, rounding);
        const FormatRef f = test_library()->formats().get(name);
        if (rounding == std::string("stochastic") && !plain_scalar(*f) && !stochastic_formula(*f)) {
          const std::string refused = refusal_of([&] { recipe::Optimizer(*test_library(), settings); });
          EXPECT_NE(refused.find("looks its codes up in a table"), std::string::npos) << what << ": " << refused;
          continue;
        }
        expect_updates(settings, machines, what);
      }
  for (const char* rest : {"exact", "bf16", "mxfp8_e4m3"}) {
    recipe::OptimizerSettings settings;
    settings.held = {"bf16", "nearest", rest};
    expect_updates(settings, machines, std::string("what bf16 loses in ") + rest);
  }
  recipe::OptimizerSettings settings;
  settings.held = {"fp8_row", "nearest", "exact"};
  EXPECT_NE(refusal_of([&] { recipe::Optimizer(*test_library(), settings); }).find("is for bf16"), std::string::npos);
}

// Sums of gradients, and changes of parameters, as ranks send them.
TEST(StateCombinations, WhatRanksExchange) {
  MachineKernels machines;
  const recipe::Optimizer optimizer(*test_library(), {});
  const std::vector<Cut> cuts = cut_parameters({weight()}, optimizer, 2);
  for (const LevelOfScale& level : levels_of_scale())
    for (const std::string& name : level.formats) {
      const FormatRef f = test_library()->formats().get(name);
      const std::string refused = refusal_of([&] { check_exchange_format(f, "--reduce-type"); });
      if (f->row_bytes > 0 || f->tile_bytes > 0 || f->tensor_bytes > 0) {
        EXPECT_NE(refused.find("are not independent"), std::string::npos) << name << ": " << refused;
        continue;
      }
      ASSERT_EQ(refused, "") << name;
      for (const Graph& g : {encode_graph({cuts.data()}, f), sum_graph({cuts.data()}, 0, 2, true, f)}) {
        auto inputs = std::map<std::string, graph::Tensor>();
        uint64_t seed = 1;
        for (const ValueId v : g.inputs()) {
          graph::Tensor t = run::random_tensor({g[v].type.shape, {}}, ++seed);
          t.type = g[v].type;
          if (t.type.element.format) {
            const std::vector<float> numbers(t.values.begin(), t.values.end());
            const int64_t columns = t.type.shape.back().number();
            t.blob = encode(*f, numbers, std::ssize(numbers) / columns, columns);
          }
          inputs[g[v].attributes.name] = std::move(t);
        }
        std::map<std::string, graph::Tensor> after;
        (void)graph::eval(g, inputs, {}, &after);
        const auto program = engine().compile(g, {});
        std::map<std::string, run::DeviceTensorRef> bound;
        for (const std::string& input : program->input_names())
          program->bind(input, bound[input] = run::upload(engine(), inputs.at(input)));
        program->run();
        EXPECT_FALSE(after.empty());
        for (const auto& [state, want] : after) run::expect_near(run::floats_of(bound.at(state)), want.values, 1e-5);
        machines.synthesize(g, {}, g.name + " in " + name);
      }
    }
}

}  // namespace
}  // namespace lumen::model::train
