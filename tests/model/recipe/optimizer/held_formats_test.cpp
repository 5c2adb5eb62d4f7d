// needs: none. Parameters held in any format, rounded at random; and what rounding loses of them, held as well.
#include <cmath>
#include <cstring>
#include <random>

#include "base/error.h"
#include "graph/ir/verify.h"
#include "model/recipe/optimizer/held.h"
#include "model/recipe/record/record.h"
#include "model/train/loop/loop.h"
#include "model/train/trainer/forecast.h"
#include "number/formula/scalar.h"
#include "tests/model/tiny.h"
#include "tests/model/train/training_case.h"

namespace lumen::model::recipe {
namespace {

constexpr int64_t kRows = 4, kColumns = 128;

std::vector<double> normal_numbers(double size) {
  std::mt19937 random(5);
  std::normal_distribution<double> normal(0, size);
  std::vector<double> out(kRows * kColumns);
  for (double& x : out) x = static_cast<float>(normal(random));
  return out;
}

// What is held of x, as f32.
std::vector<double> held(const std::vector<double>& x, const graph::Element& as, uint32_t seed) {
  graph::Graph g;
  graph::Builder build(g);
  const graph::ValueId value = build.input("x", graph::Role::data, {{kRows, kColumns}, {}});
  const graph::ValueId s = build.input("seed", graph::Role::data, {{}, {Scalar::u32, nullptr}});
  g.results = {build.cast(hold_at_random(build, value, as, s, 1), graph::Element{})};
  g.result_names = {"y"};
  EXPECT_EQ(graph::verify(g), "");
  graph::Tensor t;
  t.type = g[value].type;
  t.values = x;
  return graph::eval(g, {{"x", t}, {"seed", number(seed, Scalar::u32)}}, {})[0].values;
}

HeldIn settings(const std::string& type, const std::string& compensation = "none",
                const std::string& rounding = "stochastic") {
  return held_in({type, rounding, compensation}, test_library()->formats());
}

// Of few numbers of each format, many times: a neighbour, and right on average. Numbers that clip are apart (powers of
// two rounded down); what is held stays.
TEST(HeldFormats, AreRightOnAverage) {
  const std::vector<double> x = normal_numbers(0.05);
  constexpr int kTimes = 60;
  for (const char* name : {"f16", "fp8_row", "fp8_tensor", "fp8_tile", "fp8_1x128", "mxfp8_e4m3_up", "fp8_two_level",
                           "int8_row", "int8_block", "q8_0"}) {
    const graph::Element as = settings(name).element;
    std::vector<double> mean(x.size()), least(x.size(), 1e30), most(x.size(), -1e30);
    for (int i = 0; i < kTimes; ++i) {
      const std::vector<double> y = held(x, as, 100 + i);
      for (size_t k = 0; k < x.size(); ++k) {
        mean[k] += y[k] / kTimes;
        least[k] = std::min(least[k], y[k]);
        most[k] = std::max(most[k], y[k]);
      }
    }
    double bias = 0, spread = 0, largest = 0;
    for (size_t k = 0; k < x.size(); ++k) largest = std::max(largest, most[k] - least[k]);
    for (size_t k = 0; k < x.size(); ++k) {
      const double step = most[k] - least[k];  // 0: so near to one that the other was never drawn
      EXPECT_NEAR(mean[k], x[k], step > 0 ? 0.35 * step : 0.1 * largest) << name << " " << k;
      bias += mean[k] - x[k];
      spread += step;
    }
    EXPECT_GT(spread, 0) << name;
    EXPECT_LT(std::abs(bias), 0.02 * spread) << name;
    const std::vector<double> once = held(x, as, 7);
    EXPECT_EQ(held(once, as, 8), once) << name << ": what is held moves";
  }
}

TEST(HeldFormats, ExactHalvesAreTheWhole) {
  std::mt19937 random(9);
  std::vector<double> x;
  for (int i = 0; i < kRows * kColumns - 4; ++i) {
    const uint32_t bits = random();
    float f = 0;
    std::memcpy(&f, &bits, sizeof f);
    x.push_back(std::isfinite(f) && std::abs(f) < 1e37F && std::abs(f) > 1e-37F ? f : 1.0F);
  }
  for (const uint32_t bits : {0x3f808000U, 0x3f818000U, 0xbf808000U, 0xbf807fffU}) {  // halves between two bf16
    float f = 0;
    std::memcpy(&f, &bits, sizeof f);
    x.push_back(f);
  }
  graph::Graph g;
  graph::Builder build(g);
  const graph::ValueId value = build.input("x", graph::Role::data, {{kRows, kColumns}, {}});
  const Halves halves = split_halves(build, value);
  const graph::Element lower = *settings("bf16", "exact").rest;
  const graph::ValueId rest = build.cast(build.cast(halves.lower, lower), graph::Element{});
  g.results = {join_halves(build, build.cast(halves.upper, graph::Element{}), rest)};
  g.result_names = {"y"};
  graph::Tensor t;
  t.type = g[value].type;
  t.values = x;
  EXPECT_EQ(graph::eval(g, {{"x", t}}, {})[0].values, x);
  for (const double v : x) {
    const auto [upper, off] = halves_of(static_cast<float>(v));
    EXPECT_EQ(upper, bf16_to_f32(f32_to_bf16(upper)));
    EXPECT_LE(std::abs(off), 32768);
  }
}

TEST(HeldFormats, RefusalsSayWhy) {
  const auto refusal = [](const std::function<void()>& work) {
    try {
      work();
    } catch (const Error& e) {
      return std::string(e.what());
    }
    return std::string();
  };
  EXPECT_NE(refusal([] { (void)settings("nf4"); }).find("table"), std::string::npos);
  EXPECT_EQ(refusal([] { (void)settings("nf4", "bf16"); }), "");
  EXPECT_EQ(refusal([] { (void)settings("nf4", "none", "nearest"); }), "");
  EXPECT_NE(refusal([] { (void)settings("f32", "bf16"); }).find("lose nothing"), std::string::npos);
  EXPECT_NE(refusal([] { (void)settings("f16", "exact"); }).find("upper half"), std::string::npos);
  EXPECT_NE(refusal([] { (void)settings("absent"); }), "");
}

struct Start {
  arch::Model model;
  std::shared_ptr<data::Dataset> data;
  Start() {
    const text::Tokenizer tokenizer = text::Tokenizer::characters(train::training_text());
    data = std::make_shared<data::Dataset>(data::Dataset::from_text(train::training_text(), tokenizer));
    const arch::FamilyRef family = test_library()->family("llama");
    model = initialise(family, family->config("tiny", {{"vocab", static_cast<double>(tokenizer.size())}}), 3);
    model.tokenizer = tokenizer;
  }
};

Recipe recipe_of(const std::string& type, const std::string& compensation = "none",
                 const std::string& rounding = "stochastic") {
  Recipe r = train::small_recipe();
  r.param_type = type;
  r.param_compensation = compensation;
  r.param_rounding = rounding;
  return r;
}

TEST(HeldFormats, TrainNearlyAsWell) {
  const Start s;
  run::Engine engine = train::make_engine(2);
  train::Trainer reference(engine, s.model, train::small_recipe(), s.data);
  const double want = run_training(reference, {}).validation_loss;
  for (const char* name : {"fp8_row", "mxfp8_e4m3_up", "q8_0"}) {
    train::Trainer trainer(engine, s.model, recipe_of(name), s.data);
    EXPECT_NEAR(run_training(trainer, {}).validation_loss, want, 0.15 * want) << name;
  }
  train::Trainer table(engine, s.model, recipe_of("nf4", "int8_row"), s.data);
  EXPECT_LT(run_training(table, {}).validation_loss, 1.5 * want);
}

// What products pass weights through is made of what is held of them.
TEST(HeldFormats, GoWithFormatsOfProducts) {
  const Start s;
  run::Engine engine = train::make_engine(2);
  Recipe recipe = train::small_recipe();
  recipe.precision = "bf16";
  recipe.products.activation = recipe.products.weight = recipe.products.gradient = "int8_row";
  train::Trainer reference(engine, s.model, recipe, s.data);
  const double want = run_training(reference, {}).validation_loss;
  recipe.param_type = "int8_block";
  train::Trainer trainer(engine, s.model, recipe, s.data);
  const double loss = run_training(trainer, {}).validation_loss;
  EXPECT_NE(loss, want);
  EXPECT_NEAR(loss, want, 0.15 * want);
  // Codes of products are no longer those of f32 weights, and not those that lie there either.
  recipe.products.weight = "none";
  train::Trainer without(engine, s.model, recipe, s.data);
  EXPECT_NE(run_training(without, {}).validation_loss, loss);
}

TEST(HeldFormats, GiveTheSameBytesWithStatesElsewhere) {
  const Start s;
  for (const auto& [type, rest] : {std::pair{"fp8_row", "none"}, {"bf16", "exact"}}) {
    std::map<std::string, std::vector<uint8_t>> here;
    for (const char* offload : {"", "moments"}) {
      run::Engine engine = train::make_engine(2);
      const TestFolder folder;
      Recipe recipe = recipe_of(type, rest);
      recipe.offload = offload;
      recipe.run_folder = folder.path().string();
      train::Trainer trainer(engine, s.model, recipe, s.data);
      for (int i = 0; i < 3; ++i) (void)trainer.step();
      if (here.empty())
        here = weights_of(trainer);
      else
        EXPECT_EQ(weights_of(trainer), here) << type;
    }
    // By layers sums may round otherwise.
    run::Engine engine = train::make_engine(2);
    const TestFolder folder;
    Recipe recipe = recipe_of(type, rest);
    recipe.offload = "layers";
    recipe.run_folder = folder.path().string();
    train::Trainer by_layers(engine, s.model, recipe, s.data);
    double loss = 0;
    for (int i = 0; i < 3; ++i) loss = by_layers.step().loss;
    EXPECT_TRUE(std::isfinite(loss)) << type;
    EXPECT_TRUE(std::isfinite(by_layers.evaluate())) << type;
  }
}

// On other numbers of threads as well; checkpoints hold the very format.
TEST(HeldFormats, ResumeBitForBit) {
  const Start s;
  for (const auto& [type, rest, optimizer] : {std::tuple{"fp8_row", "none", "adamw"},
                                              {"int8_block", "none", "muon"},
                                              {"bf16", "exact", "adamw"},
                                              {"mxfp8_e4m3", "mxfp8_e4m3", "lion"},
                                              {"q8_0", "none", "adafactor"}}) {
    run::Engine two = train::make_engine(2), one = train::make_engine(1);
    Recipe recipe = recipe_of(type, rest);
    recipe.optimizer.name = optimizer;
    train::Trainer straight(two, s.model, recipe, s.data);
    for (int i = 0; i < 4; ++i) (void)straight.step();
    const TestFolder folder;
    train::Trainer first(one, s.model, recipe, s.data);
    for (int i = 0; i < 2; ++i) (void)first.step();
    const auto saved = first.save(folder.path());
    const file::Checkpoint c = file::load_checkpoint(saved, test_library()->formats());
    const graph::Element stored = c.weights->get("layers.0.wq").element;
    EXPECT_EQ(stored.format ? stored.format->name : std::string(scalar_name(stored.scalar)), type);
    EXPECT_EQ(c.weights->get("norm").element.scalar, Scalar::f32);
    EXPECT_EQ(read_run(test_library(), c).model.weights.size(), s.model.weights.size());
    EXPECT_EQ(c.optimizer->find(optimizer_state(kRest, "layers.0.wq")) != nullptr, rest != std::string("none"));
    train::Trainer second(two, s.model, recipe, s.data);
    second.restore(c);
    for (int i = 0; i < 2; ++i) (void)second.step();
    EXPECT_EQ(weights_of(second), weights_of(straight)) << type << " " << rest;
    EXPECT_TRUE(std::isfinite(second.evaluate()));
  }
}

// Moves below half a step of bf16: to the nearest they are lost, with a compensation they are not.
TEST(HeldFormats, CompensationTrainsAsF32Does) {
  const Start s;
  run::Engine engine = train::make_engine(2);
  const auto loss = [&](const Recipe& from) {
    Recipe r = from;
    r.optimizer.weight_decay = 0;
    r.schedule = {.shape = Schedule::Shape::constant, .peak = 1e-5, .floor = 0, .warmup = 0, .steps = 150};
    train::Trainer trainer(engine, s.model, r, s.data);
    return run_training(trainer, {}).validation_loss;
  };
  train::Trainer fresh(engine, s.model, train::small_recipe(), s.data);
  const double begun = fresh.evaluate(), f32 = loss(train::small_recipe()), gained = begun - f32;
  ASSERT_GT(gained, 0);
  EXPECT_LT(begun - loss(recipe_of("bf16", "none", "nearest")), 0.7 * gained);
  EXPECT_NEAR(loss(recipe_of("bf16", "bf16")), f32, 0.05 * gained);
  EXPECT_NEAR(loss(recipe_of("bf16", "exact")), f32, 0.05 * gained);
}

// Bytes as the plan says them: of parameters, of what is lost of them, of moments.
TEST(HeldFormats, TakeWhatThePlanSays) {
  const Start s;
  run::Engine engine = train::make_engine(2);
  int64_t matrices = 0, before = 0;
  for (const auto& [type, rest] :
       {std::pair{"f32", "none"}, {"bf16", "none"}, {"bf16", "exact"}, {"int8_block", "int8_block"}}) {
    const Recipe recipe = recipe_of(type, rest);
    const HeldIn in = settings(type, rest);
    int64_t weights = 0, moments = 0, frozen = 0;
    for (const arch::Parameter& p : s.model.parameters) {
      const graph::Type f32{p.shape, {}};
      const bool is_held = in.holds(p);
      weights += graph::byte_size({p.shape, is_held ? in.element : graph::Element{}});
      frozen += p.frozen ? graph::byte_size(f32) : 0;
      moments += p.frozen ? 0 : 2 * graph::byte_size(f32);
      if (is_held && in.rest) moments += graph::byte_size({p.shape, in.rest_of(p)});
      if (before == 0 && p.shape.size() >= 2 && !p.frozen) matrices += p.count();
    }
    if (before == 0) before = weights;
    if (type == std::string("bf16")) {
      EXPECT_EQ(weights, before - 2 * matrices);
    }
    const train::TrainingForecast f = train::forecast_training(engine, s.model, recipe);
    EXPECT_EQ(f.weights, weights) << type;
    EXPECT_EQ(f.moments, moments) << type << " " << rest;
    train::Trainer trainer(engine, s.model, recipe, s.data);
    for (const train::Trainer::Held& held : trainer.memory()) {
      if (held.kind == "trained weights") {
        EXPECT_EQ(held.bytes, weights - frozen) << type;
      }
      if (held.kind == "optimizer") {
        EXPECT_EQ(held.bytes, moments) << type << " " << rest;
      }
    }
  }
}

}  // namespace
}  // namespace lumen::model::recipe
