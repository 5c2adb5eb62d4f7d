// needs: none. Adapters trained beside packed weights: gradients, agreement with decoded weights, memory, threads.
#include "model/train/method/lora.h"

#include <cmath>

#include "base/error.h"
#include "graph/grad/reverse.h"
#include "graph/ir/verify.h"
#include "graph/pipeline/pipeline.h"
#include "model/train/loop/loop.h"
#include "model/train/trainer/forecast.h"
#include "run/engine/compile/repeat.h"
#include "tests/model/train/adapter/lora_case.h"

namespace lumen::model::train {
namespace {

// Gradients of all adapters of a model against central differences (with one extrapolation), in double.
TEST(LoraGradients, AreFiniteDifferences) {
  const arch::Model m = tiny_model(2, false);
  recipe::AdapterSettings settings = adapter_settings();
  settings.rank = 2;
  settings.targets = {"all-linear", "embed", "output"};
  const graph::Graph plain = m.family->function("loss", m.config);
  const auto changes = adapter_changes(m, graph::low_rank_places(plain), settings);
  EXPECT_EQ(changes.size(), 16U);
  const graph::Graph loss = graph::changed(plain, {.low_rank = changes});
  ASSERT_EQ(graph::verify(loss), "");
  const auto parameters = adapter_parameters(m, changes, settings);
  graph::Graph both = loss;
  std::vector<graph::ValueId> with;
  for (const arch::Parameter& p : parameters) with.push_back(both.find_input(p.name));
  const auto gradients = graph::differentiate(both, both.results[0], with);
  both.results.insert(both.results.end(), gradients.begin(), gradients.end());
  both.result_names.resize(both.results.size(), "gradient");
  auto inputs = tiny_inputs(m, 2, 5);
  uint32_t salt = 0;
  for (arch::Parameter p : parameters) {
    p.init = "normal";
    p.init_scale = 0.3;
    inputs[p.name] = f32_tensor(initial_weight(*m.family, m.config, p, 5, ++salt));
  }
  graph::EvalOptions options;
  options.wide = true;
  options.symbols = {{"B", 2}, {"T", 5}};
  const std::vector<graph::Tensor> exact = graph::eval(both, inputs, options);
  for (size_t p = 0; p < parameters.size(); ++p) {
    std::vector<double>& values = inputs.at(parameters[p].name).values;
    const size_t i = (3 * p + 1) % values.size();
    const double x = values[i], h = 1e-3;
    const auto at = [&](double value) {
      values[i] = value;
      const double y = graph::eval(loss, inputs, options)[0].values[0];
      values[i] = x;
      return y;
    };
    const auto slope = [&](double step) { return (at(x + step) - at(x - step)) / (2 * step); };
    const double gradient = exact[p + 1].values[i];
    EXPECT_NEAR((4 * slope(h / 2) - slope(h)) / 3, gradient, 1e-6 * std::abs(gradient) + 1e-9) << parameters[p].name;
  }
}

class PackedBase : public testing::TestWithParam<const char*> {};

// Training beside packed weights is training beside what they decode to.
TEST_P(PackedBase, TrainsAsItsDecodedWeightsDo) {
  run::Engine engine = make_engine(2);
  for (const char* method : {"lora", "dora"}) {
    const WideCase s;
    const arch::Model packed = packed_model(engine, s.model, GetParam()),
                      decoded = compress::dequantize(engine, packed);
    recipe::Recipe recipe = adapter_recipe();
    recipe.adapter.method = method;
    Trainer a(engine, packed, recipe, s.data), b(engine, decoded, recipe, s.data);
    EXPECT_NEAR(a.evaluate(4), b.evaluate(4), 1e-4);
    for (int i = 0; i < 4; ++i) {
      const Trainer::Step x = a.step(), y = b.step();
      EXPECT_NEAR(x.loss, y.loss, 2e-4 * y.loss) << method << " " << i;
      EXPECT_NEAR(x.norm, y.norm, 1e-2 * y.norm) << method << " " << i;
    }
    // The packed weights are what they were.
    EXPECT_EQ(a.model().weights.at("layers.0.up").bytes, packed.weights.at("layers.0.up").bytes);
  }
}

INSTANTIATE_TEST_SUITE_P(Formats, PackedBase, testing::Values("q4_0", "q4_k", "nf4", "bf16"));

// A step computes nothing of a frozen weight's size: no decoded copy, no gradient of it. And what only gradients of
// other layers would need is not kept.
TEST(LoraMemory, StepsComputeNothingOfAWeightsSize) {
  run::Engine engine = make_engine(2);
  const WideCase s;
  const arch::Model packed = packed_model(engine, s.model, "q4_0");
  for (const char* method : {"lora", "dora"}) {
    recipe::Recipe recipe = adapter_recipe();
    recipe.adapter.method = method;
    const Method all(packed, recipe, {});
    const Method::Work work = all.step();
    for (const graph::Node& node : work.graph.nodes) {
      if (node.op == graph::Op::input_) continue;
      for (const arch::Parameter& p : packed.parameters)
        EXPECT_FALSE(p.shape.size() == 2 && node.type.shape == p.shape) << p.name << " " << method;
    }
    recipe.adapter.targets = {"ffn_down"};
    const Method last(packed, recipe, {});
    EXPECT_LT(engine.arena_bytes(last.step().graph, last.step().options),
              engine.arena_bytes(work.graph, work.options) * 3 / 4);
  }
}

// No tensor of the size of an expanded weight is ever made: weights are bound where they lie, and all that is taken is
// less than one of them expanded.
TEST(LoraMemory, NothingIsExpanded) {
  const arch::FamilyRef family = test_library()->family("llama");
  const text::Tokenizer tokenizer = text::Tokenizer::characters(training_text());
  arch::Model model = initialise(family,
                                 family->config("", {{"vocab", static_cast<double>(tokenizer.size())},
                                                     {"hidden", 512},
                                                     {"layers", 1},
                                                     {"heads", 4},
                                                     {"ffn", 2048},
                                                     {"context", 8}}),
                                 1);
  model.tokenizer = tokenizer;
  run::Engine engine = make_engine(2);
  const arch::Model packed = packed_model(engine, model, "q4_0");
  recipe::Recipe recipe = adapter_recipe();
  recipe.batch = 1;
  recipe.length = 8;
  recipe.adapter.rank = 2;
  for (const char* method : {"lora", "dora"}) {
    run::Engine own = make_engine(2);
    recipe.adapter.method = method;
    const auto data = std::make_shared<data::Dataset>(data::Dataset::from_text(training_text(), tokenizer));
    Trainer trainer(own, packed, recipe, data);
    (void)trainer.step();
    (void)trainer.evaluate(1);
    const int64_t expanded = int64_t{512} * 2048 * 4;
    EXPECT_LT(own.device().memory().peak, expanded) << method;
  }
}

TEST(Lora, LossFalls) {
  run::Engine engine = make_engine(2);
  const WideCase s;
  const arch::Model packed = packed_model(engine, s.model, "q4_0");
  recipe::Recipe recipe = adapter_recipe();
  recipe.schedule.steps = 30;
  Trainer trainer(engine, packed, recipe, s.data);
  const double before = trainer.evaluate(8);
  (void)run_training(trainer, {});
  const double after = trainer.evaluate(0);
  EXPECT_LT(after, 0.8 * before);
}

// W + scale B A, its rows as long as their magnitudes say.
arch::Model folded(run::Engine& engine, const arch::Model& base, const arch::Adapter& adapter) {
  arch::Model out = compress::dequantize(engine, base);
  for (const auto& [name, part] : adapter.parts) {
    arch::Weight& w = out.weights.at(name);
    std::vector<float> values(w.f32().begin(), w.f32().end());
    const auto a = part.a.f32(), b = part.b.f32();
    const int64_t rows = w.rows(), columns = w.columns(), rank = part.rank();
    for (int64_t n = 0; n < rows; ++n) {
      double square = 0;
      for (int64_t k = 0; k < columns; ++k) {
        float& v = values[static_cast<size_t>(n * columns + k)];
        double sum = 0;
        for (int64_t r = 0; r < rank; ++r)
          sum += static_cast<double>(b[static_cast<size_t>(n * rank + r)]) *
                 static_cast<double>(a[static_cast<size_t>(r * columns + k)]);
        v += static_cast<float>(part.scale * sum);
        square += static_cast<double>(v) * v;
      }
      if (!part.magnitude) continue;
      const double gain = part.magnitude->f32()[static_cast<size_t>(n)] / std::sqrt(square);
      for (int64_t k = 0; k < columns; ++k) values[static_cast<size_t>(n * columns + k)] *= static_cast<float>(gain);
    }
    w = arch::f32_weight(w.type.shape, values);
  }
  return out;
}

// Of a model that has learned something: beside its weights in 4 bits an adapter learns another text as well as beside
// the weights themselves, or better: how far apart they end depends on the order in which a processor adds.
TEST(Lora, FromFourBitsTheLossFallsAsFromFloats) {
  run::Engine engine = make_engine(2);
  const WideCase s;
  recipe::Recipe whole = adapter_recipe();
  whole.adapter = {};
  Trainer first(engine, s.model, whole, s.data);
  for (int i = 0; i < 40; ++i) (void)first.step();
  std::string text;
  for (int i = 0; i < 400; ++i) text += i % 2 == 0 ? "dogs ran. the mat sat. " : "a cat to the dog. ";
  const auto other = std::make_shared<data::Dataset>(data::Dataset::from_text(text, *s.model.tokenizer));
  const arch::Model floats = first.model(), packed = packed_model(engine, floats, "q4_k");
  std::vector<double> before, after;
  for (const arch::Model& base : {floats, packed}) {
    recipe::Recipe recipe = adapter_recipe();
    recipe.batch = 8;
    recipe.schedule.steps = 120;
    Trainer trainer(engine, base, recipe, other);
    before.push_back(trainer.evaluate(0));
    for (int i = 0; i < 120; ++i) (void)trainer.step();
    after.push_back(trainer.evaluate(0));
  }
  EXPECT_LT(after[0], 0.5 * before[0]);
  EXPECT_LT(after[1], 0.5 * before[1]);
  EXPECT_LE(after[1], after[0] + 0.01 * before[0]);
  EXPECT_GE(after[1], after[0] - 0.06 * before[0]);  // by chance alone
  // Before anything is trained, packing has lost something and little.
  EXPECT_NE(before[1], before[0]);
  EXPECT_NEAR(before[1], before[0], 0.05 * before[0]);
}

// The adapter that is handed out is what was trained: folded into the weights it gives the loss that evaluation gave.
TEST(Lora, FoldedIntoTheWeightsItGivesTheSameLoss) {
  run::Engine engine = make_engine(2);
  const WideCase s;
  const arch::Model packed = packed_model(engine, s.model, "q4_0");
  for (const char* method : {"lora", "dora"}) {
    recipe::Recipe recipe = adapter_recipe();
    recipe.adapter.method = method;
    recipe.adapter.rs_lora = true;
    Trainer trainer(engine, packed, recipe, s.data);
    for (int i = 0; i < 8; ++i) (void)trainer.step();
    recipe::Recipe plain = recipe;
    plain.adapter = {};
    Trainer merged(engine, folded(engine, trainer.model(), trainer.adapter()), plain, s.data);
    EXPECT_NEAR(merged.evaluate(8), trainer.evaluate(8), 2e-5) << method;
    EXPECT_GT(
        std::abs(merged.evaluate(8) - Trainer(engine, compress::dequantize(engine, packed), plain, s.data).evaluate(8)),
        0.05);
  }
}

// Adapters of all kinds of places learn: stacked matrices, embeddings and outputs, with and without magnitudes.
TEST(Lora, StackedMatricesEmbeddingsAndOutputsLearn) {
  run::Engine engine = make_engine(2);
  const MixtureCase s;
  for (const char* method : {"lora", "dora"}) {
    for (const bool packed : {false, true}) {
      recipe::Recipe recipe = adapter_recipe();
      recipe.adapter.method = method;
      recipe.adapter.rank = 4;
      recipe.adapter.targets = {"gates", "ups", "downs", "embed", "output", "attention_q"};
      recipe.schedule.steps = 20;
      Trainer trainer(engine, packed ? packed_model(engine, s.model, "q4_0") : s.model, recipe, s.data);
      const double before = trainer.evaluate(4);
      (void)run_training(trainer, {});
      EXPECT_LT(trainer.evaluate(4), 0.95 * before) << method << packed;
      const arch::Adapter adapter = trainer.adapter();
      EXPECT_EQ(adapter.parts.size(), 2U * 4 + 2);
      for (const auto& [name, part] : adapter.parts) {
        const auto b = part.b.f32();
        EXPECT_TRUE(std::any_of(b.begin(), b.end(), [](float v) { return v != 0; })) << name;
        EXPECT_EQ(part.magnitude.has_value(), std::string(method) == "dora");
      }
    }
  }
}

TEST(Lora, SameBitsForAnyThreadCount) {
  run::Engine one = make_engine(2);
  const WideCase s;
  const arch::Model packed = packed_model(one, s.model, "q4_k");
  recipe::Recipe recipe = adapter_recipe();
  recipe.adapter.method = "dora";
  recipe.adapter.dropout = 0.1;
  std::map<std::string, std::vector<uint8_t>> first;
  for (const int threads : {1, 2, 3}) {
    run::Engine engine = make_engine(threads);
    Trainer trainer(engine, packed, recipe, s.data);
    for (int i = 0; i < 3; ++i) (void)trainer.step();
    if (first.empty())
      first = bytes_of(trainer.adapter());
    else
      EXPECT_EQ(bytes_of(trainer.adapter()), first) << threads;
  }
}

// What is left out in a step counts in training alone.
TEST(Lora, DropoutIsOffInEvaluation) {
  run::Engine engine = make_engine(2);
  const WideCase s;
  recipe::Recipe recipe = adapter_recipe();
  recipe.schedule.peak = recipe.schedule.floor = 0;
  Trainer plain(engine, s.model, recipe, s.data);
  recipe.adapter.dropout = 0.5;
  Trainer dropping(engine, s.model, recipe, s.data);
  EXPECT_EQ(plain.evaluate(4), dropping.evaluate(4));
  EXPECT_EQ(plain.step().loss, dropping.step().loss);  // B is zero
  EXPECT_NE(plain.step().norm, dropping.step().norm);
}

TEST(Lora, TargetsAreNamedInManyWays) {
  const arch::Model m = tiny_model();
  const auto places = graph::low_rank_places(m.family->function("loss", m.config));
  const auto chosen = [&](const std::vector<std::string>& targets) {
    recipe::AdapterSettings settings = adapter_settings();
    settings.rank = 2;
    settings.targets = targets;
    std::string names;
    for (const graph::LowRank& c : adapter_changes(m, places, settings))
      names += (names.empty() ? "" : " ") + c.weight + (c.rows ? ":rows" : "");
    return names;
  };
  const std::string queries = "layers.0.wq layers.1.wq";
  EXPECT_EQ(chosen({"wq"}), queries);
  EXPECT_EQ(chosen({"q_proj"}), queries);
  EXPECT_EQ(chosen({"attn_q"}), queries);
  EXPECT_EQ(chosen({"attention_q"}), queries);
  EXPECT_EQ(chosen({"layers.*.wq"}), queries);
  EXPECT_EQ(chosen({"layers.1.wq", "embed"}), "embed:rows layers.1.wq");
  EXPECT_EQ(chosen({"self_attn.q_proj"}), queries);
  EXPECT_EQ(chosen({"lm_head"}), "output");
  EXPECT_EQ(chosen({"layers.1.*"}).find("norm"), std::string::npos);
  EXPECT_EQ(chosen({"all-linear"}).find("output"), std::string::npos);
  EXPECT_THROW(chosen({"nothing"}), Error);
  EXPECT_THROW(chosen({"attn_norm"}), Error);
  EXPECT_THROW(chosen({"norm"}), Error);
  const arch::Model tied = tiny_model(1, true);
  recipe::AdapterSettings settings = adapter_settings();
  settings.targets = {"lm_head"};
  EXPECT_THROW(adapter_changes(tied, places, settings), Error);
  settings.targets = {"wq"};
  settings.rank = 13;
  EXPECT_THROW(adapter_changes(m, places, settings), Error);
}

TEST(Lora, SettingsThatContradict) {
  run::Engine engine = make_engine(2);
  const WideCase s;
  for (const auto& spoil : std::vector<std::function<void(recipe::Recipe&)>>{
           [](recipe::Recipe& r) { r.adapter.method = "other"; }, [](recipe::Recipe& r) { r.adapter.targets.clear(); },
           [](recipe::Recipe& r) { r.adapter.init = "other"; }, [](recipe::Recipe& r) { r.adapter.dropout = 1; },
           [](recipe::Recipe& r) {
             r.quantize.resize(1);
             r.quantize[0].values = {"*"};
             r.quantize[0].format = "q4_0";
           }}) {
    recipe::Recipe recipe = adapter_recipe();
    spoil(recipe);
    EXPECT_THROW(Trainer(engine, s.model, recipe, s.data), Error);
  }
}

// What was said to be needed is what is taken.
TEST(Lora, TheForecastIsWhatIsTaken) {
  run::Engine engine = make_engine(2);
  const WideCase s;
  const arch::Model packed = packed_model(engine, s.model, "q4_0");
  recipe::Recipe recipe = adapter_recipe();
  for (const char* method : {"lora", "dora"}) {
    for (const int64_t accumulate : {1, 2}) {
      recipe.adapter.method = method;
      recipe.accumulate = accumulate;
      run::Engine own = make_engine(2);
      const TrainingForecast f = forecast_training(own, packed, recipe);
      Trainer trainer(own, packed, recipe, s.data);
      (void)trainer.step();
      (void)trainer.evaluate(2);
      int64_t in_place = 0;
      for (const auto& [name, w] : packed.weights)
        if (reinterpret_cast<uintptr_t>(w.bytes.data()) % static_cast<uintptr_t>(run::kParameterAlignment) == 0)
          in_place += static_cast<int64_t>(w.bytes.size());
      const int64_t taken = own.device().memory().peak + in_place;
      EXPECT_GE(f.total(), taken * 97 / 100) << method << accumulate;
      EXPECT_LE(f.total(), taken * 103 / 100) << method << accumulate;
      const std::string plan = plan_text(f, 1e9);
      for (const char* line : {"weights, as they are", "adapters", "states of the optimizer", "values of a step",
                               "together", "numbers that are trained", "time of a step"})
        EXPECT_NE(plan.find(line), std::string::npos) << line;
    }
  }
}

}  // namespace
}  // namespace lumen::model::train
