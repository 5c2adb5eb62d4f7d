// needs: none. Schedules, recipes, and the training step as a graph, checked by the oracle.
#include <cmath>

#include "base/error.h"
#include "graph/grad/reverse.h"
#include "graph/ir/verify.h"
#include "model/recipe/optimizer/optimizer.h"
#include "model/recipe/recipe.h"
#include "tests/model/tiny.h"

namespace lumen::model::train {
namespace {

using graph::Tensor;
using Inputs = std::map<std::string, Tensor>;

std::vector<arch::Parameter> trained(const arch::Model& m) {
  std::vector<arch::Parameter> out;
  for (const arch::Parameter& p : m.parameters) {
    if (!p.frozen) out.push_back(p);
  }
  return out;
}

graph::EvalOptions wide(int64_t batch, int64_t length) {
  graph::EvalOptions options;
  options.wide = true;
  options.symbols = {{"B", batch}, {"T", length}};
  return options;
}

TEST(Schedule, WarmupPeakAndEnd) {
  const recipe::Schedule s{
      .shape = recipe::Schedule::Shape::cosine, .peak = 1, .floor = 0.1, .warmup = 10, .steps = 110};
  EXPECT_LT(learning_rate(s, 0), 0.2);
  EXPECT_GT(learning_rate(s, 0), 0);
  EXPECT_DOUBLE_EQ(learning_rate(s, 10), 1);
  EXPECT_DOUBLE_EQ(learning_rate(s, 60), 0.55);
  EXPECT_DOUBLE_EQ(learning_rate(s, 110), 0.1);
  EXPECT_DOUBLE_EQ(learning_rate(s, 500), 0.1);
  for (int64_t i = 11; i < 110; ++i) EXPECT_LE(learning_rate(s, i), learning_rate(s, i - 1));
}

TEST(Recipe, EveryEmbeddedOneParsesAndDescribesItself) {
  for (const std::string& name : test_library()->recipe_names()) {
    const recipe::Recipe r = recipe::parse_recipe(test_library()->recipe(name)->text, name);
    const std::string text = describe(r);
    EXPECT_EQ(describe(recipe::parse_recipe(text, name)), text) << name;
  }
  EXPECT_TRUE(test_library()->recipe("CHAR"));
}

TEST(Recipe, UnknownKeysAreErrors) {
  EXPECT_THROW((void)recipe::parse_recipe("[schedule]\nstep = 3\n", "r"), Error);
  EXPECT_THROW((void)recipe::parse_recipe("[optimiser]\n", "r"), Error);
  EXPECT_THROW((void)recipe::parse_recipe("[[quantize]]\nformat = \"x\"\nlayers = \"some\"\n", "r"), Error);
}

TEST(Recipe, RulesChooseByNameRoleAndLayer) {
  const arch::Model m = tiny_model();
  recipe::QuantizeRule all{.values = {"*"}, .roles = {}, .format = "f32"};
  EXPECT_EQ(recipe::formats_by_rule({all}, m).size(), 16);  // 2 x 7 matrices, embedding, output
  recipe::QuantizeRule role{.values = {}, .roles = {"ffn_down"}, .format = "f32"};
  EXPECT_EQ(recipe::formats_by_rule({role}, m).size(), 2);
  role.layers = "first 1";
  EXPECT_EQ(recipe::formats_by_rule({role}, m).size(), 1);
  recipe::QuantizeRule exact{.values = {"norm"}, .roles = {}, .format = "f32"};
  EXPECT_EQ(recipe::formats_by_rule({exact}, m).size(), 1);
  recipe::QuantizeRule wrong{.values = {"nothing"}, .roles = {}, .format = "f32"};
  EXPECT_THROW((void)recipe::formats_by_rule({wrong}, m), Error);
}

TEST(Recipe, Wildcards) {
  EXPECT_TRUE(recipe::matches("layers.*.wq", "layers.13.wq"));
  EXPECT_TRUE(recipe::matches("*", ""));
  EXPECT_TRUE(recipe::matches("a?c*", "abcdef"));
  EXPECT_FALSE(recipe::matches("layers.?.wq", "layers.13.wq"));
  EXPECT_FALSE(recipe::matches("", "a"));
}

// Gradients of the whole model against central differences (with one extrapolation), all arithmetic in double.
class Gradients : public testing::TestWithParam<bool> {};

TEST_P(Gradients, OfTheWholeModelAreFiniteDifferences) {
  const arch::Model m = tiny_model(2, GetParam());
  const int64_t batch = 2, length = 5;
  const graph::Graph loss = m.family->function("loss", m.config);
  ASSERT_EQ(graph::verify(loss), "");
  graph::Graph both = loss;
  const std::vector<arch::Parameter> parameters = trained(m);
  std::vector<graph::ValueId> with;
  for (const arch::Parameter& p : parameters) with.push_back(both.find_input(p.name));
  const auto gradients = graph::differentiate(both, both.results[0], with);
  for (size_t i = 0; i < parameters.size(); ++i) {
    both.results.push_back(gradients[i]);
    both.result_names.push_back("d " + parameters[i].name);
  }
  ASSERT_EQ(graph::verify(both), "");
  Inputs inputs = tiny_inputs(m, batch, length);
  const auto options = wide(batch, length);
  const std::vector<Tensor> exact = graph::eval(both, inputs, options);
  EXPECT_GT(exact[0].values[0], 1.0);
  EXPECT_LT(exact[0].values[0], 6.0);
  const auto at = [&](std::vector<double>& values, size_t i, double x) {
    const double old = values[i];
    values[i] = x;
    const double y = graph::eval(loss, inputs, options)[0].values[0];
    values[i] = old;
    return y;
  };
  for (size_t p = 0; p < parameters.size(); ++p) {
    std::vector<double>& values = inputs.at(parameters[p].name).values;
    double error = 0, size = 0;
    const size_t stride = std::max<size_t>(1, values.size() / 6);
    for (size_t i = p % stride; i < values.size(); i += stride) {
      const double x = values[i], h = 1e-3;
      const auto slope = [&](double step) { return (at(values, i, x + step) - at(values, i, x - step)) / (2 * step); };
      const double difference = (4 * slope(h / 2) - slope(h)) / 3;
      const double gradient = exact[p + 1].values[i];
      error += (difference - gradient) * (difference - gradient);
      size += gradient * gradient;
    }
    EXPECT_GT(size, 0) << parameters[p].name;
    EXPECT_LT(std::sqrt(error / size), 1e-6) << parameters[p].name;
  }
}

INSTANTIATE_TEST_SUITE_P(Tied, Gradients, testing::Bool());

struct AdamW {
  double beta1 = 0.9, beta2 = 0.95, epsilon = 1e-8, weight_decay = 0.1, max_norm = 1.0;
};

recipe::Optimizer adamw(const AdamW& a) {
  recipe::OptimizerSettings settings;
  settings.max_norm = a.max_norm;
  return {*test_library(), settings};
}

// AdamW written down once more, for one tensor, in double.
struct Reference {
  std::vector<double> p, m, v;
  void step(const std::vector<double>& g, double clip, double rate, int64_t t, const AdamW& a, bool decay) {
    for (size_t i = 0; i < p.size(); ++i) {
      const double c = g[i] * clip;
      m[i] = a.beta1 * m[i] + (1 - a.beta1) * c;
      v[i] = a.beta2 * v[i] + (1 - a.beta2) * c * c;
      const double mh = m[i] / (1 - std::pow(a.beta1, static_cast<double>(t)));
      const double vh = v[i] / (1 - std::pow(a.beta2, static_cast<double>(t)));
      p[i] -= rate * (mh / (std::sqrt(vh) + a.epsilon) + (decay ? a.weight_decay * p[i] : 0));
    }
  }
};

void add_scalars(Inputs& inputs, const AdamW& a, double rate, int64_t t) {
  inputs[recipe::kLearningRate] = number(rate);
  inputs["step.correction1"] = number(1 - std::pow(a.beta1, static_cast<double>(t)));
  inputs["step.correction2"] = number(1 - std::pow(a.beta2, static_cast<double>(t)));
}

void add_moments(Inputs& inputs, const std::vector<arch::Parameter>& parameters, const char* prefix) {
  for (const arch::Parameter& p : parameters) {
    Tensor zero = inputs.at(p.name);
    std::fill(zero.values.begin(), zero.values.end(), 0);
    inputs[prefix + p.name] = zero;
  }
}

TEST(TrainingStep, IsAdamW) {
  const arch::Model m = tiny_model();
  const auto parameters = trained(m);
  const int64_t batch = 2, length = 5;
  AdamW settings;
  settings.max_norm = 0.5;  // below the true norm: clipping is at work
  const graph::Graph loss = m.family->function("loss", m.config);
  const graph::Graph step = training_step(loss, parameters, adamw(settings));
  ASSERT_EQ(graph::verify(step), "");
  graph::Graph gradient_graph = loss;
  std::vector<graph::ValueId> with;
  for (const arch::Parameter& p : parameters) with.push_back(gradient_graph.find_input(p.name));
  gradient_graph.results = graph::differentiate(gradient_graph, gradient_graph.results[0], with);
  gradient_graph.result_names.assign(gradient_graph.results.size(), "g");

  Inputs inputs = tiny_inputs(m, batch, length);
  add_moments(inputs, parameters, "optimizer.m.");
  add_moments(inputs, parameters, "optimizer.v.");
  std::map<std::string, Reference> references;
  for (const arch::Parameter& p : parameters) {
    const auto& values = inputs.at(p.name).values;
    references[p.name] = {values, std::vector<double>(values.size()), std::vector<double>(values.size())};
  }
  for (int64_t t = 1; t <= 3; ++t) {
    const double rate = 0.01 / static_cast<double>(t);
    const auto gradients = graph::eval(gradient_graph, inputs, wide(batch, length));
    double norm = 0;
    for (const Tensor& g : gradients) {
      for (double x : g.values) norm += x * x;
    }
    norm = std::sqrt(norm);
    ASSERT_GT(norm, settings.max_norm);
    add_scalars(inputs, settings, rate, t);
    Inputs states;
    const auto results = graph::eval(step, inputs, wide(batch, length), &states);
    EXPECT_NEAR(results[1].values[0], norm, 1e-9 * norm);
    for (size_t i = 0; i < parameters.size(); ++i) {
      const arch::Parameter& p = parameters[i];
      Reference& r = references.at(p.name);
      r.step(gradients[i].values, settings.max_norm / norm, rate, t, settings, p.shape.size() >= 2);
      ASSERT_TRUE(states.contains(p.name)) << p.name;
      for (size_t j = 0; j < r.p.size(); ++j)
        ASSERT_NEAR(states.at(p.name).values[j], r.p[j], 1e-8) << p.name << " " << j;
    }
    for (auto& [name, t2] : states) inputs[name] = t2;
  }
}

TEST(TrainingStep, AccumulationIsOneLargeBatch) {
  const arch::Model m = tiny_model();
  const auto parameters = trained(m);
  const int64_t length = 5;
  const AdamW settings;
  const graph::Graph loss = m.family->function("loss", m.config);
  // Both halves in one batch ...
  Inputs inputs = tiny_inputs(m, 2, length);
  add_moments(inputs, parameters, "optimizer.m.");
  add_moments(inputs, parameters, "optimizer.v.");
  add_scalars(inputs, settings, 0.01, 1);
  Inputs together;
  (void)graph::eval(training_step(loss, parameters, adamw(settings)), inputs, wide(2, length), &together);
  // ... and one after the other.
  add_moments(inputs, parameters, recipe::kGradient);
  const graph::Graph accumulate = recipe::accumulate_step(loss, parameters, 2),
                     apply = apply_step(parameters, adamw(settings));
  ASSERT_EQ(graph::verify(accumulate), "");
  ASSERT_EQ(graph::verify(apply), "");
  const Tensor tokens = inputs.at("tokens"), targets = inputs.at("targets");
  for (int half = 0; half < 2; ++half) {
    const auto part = [&](const Tensor& t) {
      return integers({1, length}, {t.values.begin() + half * length, t.values.begin() + (half + 1) * length});
    };
    inputs["tokens"] = part(tokens);
    inputs["targets"] = part(targets);
    Inputs states;
    (void)graph::eval(accumulate, inputs, wide(1, length), &states);
    for (auto& [name, t] : states) inputs[name] = t;
  }
  Inputs states;
  (void)graph::eval(apply, inputs, wide(1, length), &states);
  for (const arch::Parameter& p : parameters) {
    for (size_t i = 0; i < together.at(p.name).values.size(); ++i) {
      ASSERT_NEAR(states.at(p.name).values[i], together.at(p.name).values[i], 1e-9) << p.name;
    }
    for (double g : states.at(recipe::kGradient + p.name).values) ASSERT_EQ(g, 0);
  }
}

}  // namespace
}  // namespace lumen::model::train
