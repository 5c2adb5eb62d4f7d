// needs: cpu. Every combination of role, level of scale, source of the scale and rounding that [products] can name: it
// has kernels for machines and gives what the evaluator gives, or it is refused in words that say why. Some of them by
// default (combination_case.h).
#include <gtest/gtest.h>

#include "graph/grad/reverse.h"
#include "graph/keep/kept_format.h"
#include "graph/pass/learned_scales.h"
#include "graph/pipeline/pipeline.h"
#include "lang/parser.h"
#include "model/recipe/recipe.h"
#include "model/train/method/learned.h"
#include "number/facts/facts.h"
#include "number/gradient/stochastic.h"
#include "tests/graph/blocks.h"
#include "tests/model/train/combination_case.h"

namespace lumen::model::train {
namespace {

using graph::Builder;
using graph::Graph;
using graph::ValueId;

constexpr int64_t kTokens = 64, kIn = 96, kOut = 128;
const char* const kSources[] = {"fitted", "delayed", "predicted", "learned"};

struct Combination {
  std::string role, format, source = "fitted", rounding = "nearest";
  std::string text() const { return fmt::format("{} in {}, {}, {}", role, format, source, rounding); }
};

// loss = sum(c * sin(tanh(x) w)).
Graph linear() {
  Graph g;
  Builder b(g);
  const ValueId x = b.input("x", graph::Role::data, run::f32({kTokens, kIn}));
  const ValueId w = b.input("w", graph::Role::parameter, run::f32({kOut, kIn}));
  const ValueId c = b.input("c", graph::Role::data, run::f32({kTokens, kOut}));
  const ValueId y = b.contract(b.unary(ScalarOp::tanh_, x), w, "mk", "nk", "mn");
  g.results = {b.reshape(b.reduce(b.mul(b.unary(ScalarOp::sin_, y), c), graph::Reduction::sum, {0, 1}), {})};
  g.result_names = {"loss"};
  return g;
}

Graph attention() {
  Graph g;
  Builder b(g);
  graph::BlockSizes sizes;
  sizes.tokens = 32;
  sizes.head = 32;
  sizes.heads = 2;
  sizes.groups = 1;
  sizes.hidden = 64;
  g.results = {graph::transformer(b, sizes)};
  g.result_names = {"loss"};
  return g;
}

bool is_of_attention(const Combination& c) {
  return c.role.starts_with("attention");
}

recipe::Recipe recipe_of(const Combination& c, const char* precision) {
  const bool one = c.role == "activation" || c.role == "weight" || c.role == "gradient";
  std::string text = fmt::format("[run]\nprecision = \"{}\"\n[products]\n", precision);
  for (const char* role : {"activation", "weight", "gradient"})
    if (one) text += fmt::format("{} = \"{}\"\n", role, c.format);
  if (!one) text += fmt::format("{} = \"{}\"\n", c.role, c.format);
  // The gradient of what attentions mixed has neither key.
  if (c.source != "fitted") text += fmt::format("{}_scale = \"{}\"\n", c.role, c.source);
  if (c.rounding != "nearest") text += fmt::format("{}_rounding = \"{}\"\n", c.role, c.rounding);
  return recipe::parse_recipe(text, "combination");
}

// Why it cannot be; "": it can.
std::string reason(const Combination& c) {
  const FormatRef f = test_library()->formats().get(c.format);
  const bool has_scale = f->code_field >= 0 && f->fields.size() > 1, of_tensor = tensor_scale(*f) >= 0;
  if (c.role == "attention_gradient" && c.source != "fitted") return "attention_gradient_scale";  // no such key
  if (c.source == "predicted" && c.role != "weight") return "_scale: 'predicted' is unknown";
  if (c.source == "delayed" && c.role == "attention") return "_scale: 'delayed' is unknown";
  if (is_of_attention(c) && c.rounding != "nearest") return c.role + "_rounding";
  if (c.source == "learned") {
    if (c.role == "gradient") return "a gradient's scale cannot be learned";
    if (c.rounding != "nearest") return "rounded stochastically";
    if (!has_scale) return "has no scale that could be learned";
    if (c.role != "weight" && !of_tensor) return "belong to tokens";
  }
  // A format without a scale has one number beside it.
  const bool one_number = of_tensor || (!has_scale && !plain_scalar(*f));
  if ((c.source == "delayed" || c.source == "predicted") && !one_number) return "more scales than one";
  if (c.rounding == "stochastic" && !stochastic_formula(*f)) return "looks its codes up in a table";
  return "";
}

// A loss with its gradients: of what a step trains, scales that are learned among it.
struct Case {
  Graph graph;  // as its author wrote it
  std::map<std::string, graph::Tensor> inputs;
};

Case case_of(const Combination& c, const graph::ProductType& type, bool learns_attention) {
  const Graph plain = is_of_attention(c) ? attention() : linear();
  Case out;
  std::vector<graph::LearnedScale> scales;
  out.graph = graph::learn_scales(plain, type, learns_attention, &scales);
  out.inputs = graph::random_inputs(plain, 5, 11);
  const auto set = [&](const std::string& name, const graph::Shape& shape, const std::vector<float>& values) {
    out.inputs[name] = {{shape, {}}, {values.begin(), values.end()}, {}};
  };
  std::map<std::string, float> fits;
  if (std::any_of(scales.begin(), scales.end(), [](const graph::LearnedScale& s) { return s.weight.empty(); })) {
    const Graph fit = graph::fit_scales(plain, type, learns_attention);
    const auto values = graph::eval(fit, out.inputs);
    for (size_t i = 0; i < values.size(); ++i) fits[fit.result_names[i]] = static_cast<float>(values[i].values[0]);
  }
  std::vector<std::string> wanted = {"w"};
  if (is_of_attention(c)) wanted = {"wq", "wk", "wv"};
  if (!is_of_attention(c)) wanted.emplace_back("x");
  for (const graph::LearnedScale& s : scales) {
    wanted.push_back(s.name);
    if (s.weight.empty()) {
      set(s.name, s.shape, {fits.at(s.name)});
      continue;
    }
    const graph::Tensor& weight = out.inputs.at(s.weight);
    const std::vector<float> numbers(weight.values.begin(), weight.values.end());
    set(s.name, s.shape, fitted_values(s, numbers));
  }
  std::vector<ValueId> values;
  for (const std::string& name : wanted) values.push_back(out.graph.find_input(name));
  for (const ValueId d : graph::differentiate(out.graph, out.graph.results[0], values)) out.graph.results.push_back(d);
  for (const std::string& name : wanted) out.graph.result_names.push_back("d " + name);
  return out;
}

// States and seeds that rounding asks for.
void complete(std::map<std::string, graph::Tensor>& inputs, const Graph& rounded) {
  for (const ValueId v : rounded.inputs()) {
    const auto& [name, type] = std::pair(rounded[v].attributes.name, rounded[v].type);
    if (inputs.contains(name)) continue;
    const double value = name.starts_with(graph::kHistoryState) ? 2.5 : name.starts_with(graph::kLargestState) ? 3 : 17;
    inputs[name] = {type, std::vector<double>(graph::elements(type.shape).number(), value), {}};
  }
}

void check(const Combination& c, MachineKernels& machines, int* taken) {
  const std::string why = reason(c);
  const FormatLibrary& formats = test_library()->formats();
  const std::string refused = refusal_of([&] {
    const recipe::Recipe recipe = recipe_of(c, "f32");
    const graph::ProductType type = product_type(recipe, formats);
    Case one = case_of(c, type, recipe.products.learns_attention());
    Graph rounded = one.graph;
    graph::round_products(rounded, type);
    complete(one.inputs, rounded);
    run::CompileOptions options;
    options.products = type;
    if (!why.empty()) return;
    expect_as_evaluated(one.graph, rounded, one.inputs, options, c.text());
    options.products = product_type(recipe_of(c, "bf16"), formats);
    machines.synthesize(one.graph, options, c.text());
    ++*taken;
  });
  if (why.empty())
    EXPECT_EQ(refused, "") << c.text();
  else
    EXPECT_NE(refused.find(why), std::string::npos) << c.text() << ": '" << refused << "' does not say '" << why << "'";
}

// By level, so that shards share the work where all combinations are taken.
class ProductCombinations : public ::testing::TestWithParam<int> {};

TEST_P(ProductCombinations, AreComputedOrRefusedWithAReason) {
  // Each level begins with other machines.
  MachineKernels machines(11 * static_cast<size_t>(GetParam()));
  const LevelOfScale level = levels_of_scale()[static_cast<size_t>(GetParam())];
  int taken = 0, all = 0;
  for (const char* role : {"activation", "weight", "gradient", "attention", "attention_gradient"})
    for (const std::string& format : level.formats)
      for (const char* source : kSources)
        for (const char* rounding : {"nearest", "stochastic"}) {
          check({role, format, source, rounding}, machines, &taken);
          ++all;
        }
  EXPECT_EQ(all % 40, 0);
  EXPECT_GT(taken, all / 8);
  EXPECT_GT(machines.distinct(), 20U);
}
INSTANTIATE_TEST_SUITE_P(Levels, ProductCombinations, ::testing::Range(0, static_cast<int>(levels_of_scale().size())),
                         [](const auto& level) {
                           std::string name = levels_of_scale()[static_cast<size_t>(level.param)].name;
                           std::replace(name.begin(), name.end(), ' ', '_');
                           return name;
                         });

// A format that cannot be encoded.
const FormatLibrary& with_decoded_alone() {
  static const FormatLibrary all = [] {
    FormatLibrary out = test_library()->formats();
    out.add(lang::parse_file(
        std::make_shared<Source>(Source{"own.lum", "format decoded_alone { element q : i8; decode(i) = q }"})));
    return out;
  }();
  return all;
}

TEST(KeptCombinations, WhatTheForwardPassKeeps) {
  MachineKernels machines;
  for (const LevelOfScale& level : levels_of_scale())
    for (const std::string& name : level.formats) {
      // Layers h = tanh(h w), and updates of the weights by their gradients.
      Graph g;
      Builder b(g);
      ValueId h = b.input("x", graph::Role::data, run::f32({kTokens, kIn}));
      std::vector<ValueId> weights;
      for (int i = 0; i < 3; ++i) {
        weights.push_back(
            b.input(fmt::format("w{}", i), graph::Role::parameter, run::f32({kOut, i == 0 ? kIn : kOut})));
        h = b.unary(ScalarOp::tanh_, b.contract(h, weights.back(), "mk", "nk", "mn"));
      }
      g.results = {b.reshape(b.reduce(b.mul(h, h), graph::Reduction::sum, {0, 1}), {})};
      g.result_names = {"loss"};
      const std::vector<ValueId> gradients = graph::differentiate(g, g.results[0], weights);
      for (size_t i = 0; i < weights.size(); ++i) {
        b.update(weights[i], gradients[i]);
        g.results.push_back(gradients[i]);
        g.result_names.push_back(fmt::format("d w{}", i));
      }
      const auto inputs = graph::random_inputs(g, 5, 4);
      run::CompileOptions options;
      options.recompute.kept = test_library()->formats().get(name);
      const Graph first = graph::with_rounded_products(g, {}, {}, {});
      expect_as_evaluated(g, graph::keep_in_format(first, first.results[0], options.recompute.kept), inputs, options,
                          "kept in " + name);
      machines.synthesize(g, options, "kept in " + name);
    }
  EXPECT_NE(
      refusal_of([] { (void)recipe::encodable("memory.kept", "decoded_alone", with_decoded_alone()); }).find("decoded"),
      std::string::npos);
}

}  // namespace
}  // namespace lumen::model::train
