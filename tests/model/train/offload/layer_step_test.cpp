// needs: none. Steps that go layer by layer: the same losses, gradients and weights as whole steps but for rounding,
// the same bits as themselves on any number of threads, after a checkpoint and beside a GPU; what they take is what
// was forecast; what they cannot do is refused.
#include "model/train/offload/layer_step.h"

#include <gtest/gtest.h>

#include <cmath>

#include "base/error.h"
#include "base/file/file.h"
#include "model/train/trainer/forecast.h"
#include "tests/model/train/offload/offload_case.h"
#include "tests/run/stand_in.h"

namespace lumen::model::train {
namespace {

namespace fs = std::filesystem;

struct Case {
  const char* name;
  std::function<void(recipe::Recipe&)> change;
  graph::Config config = {};
};
const Case kCases[] = {
    {"plain", [](recipe::Recipe&) {}},
    {"tied", [](recipe::Recipe&) {}, {{"tied", 1}}},
    {"accumulated", [](recipe::Recipe& r) { r.accumulate = 3; }},
    {"tied, accumulated", [](recipe::Recipe& r) { r.accumulate = 2; }, {{"tied", 1}}},
    {"rounded weights",
     [](recipe::Recipe& r) { r.quantize.push_back({.values = {}, .roles = {"ffn_up"}, .format = "q8_0"}); }},
    {"another optimizer", [](recipe::Recipe& r) { r.optimizer.name = "lion"; }},
};
void set_products(recipe::Recipe& r, const char* format) {
  r.precision = "bf16";
  r.products.activation = r.products.weight = r.products.gradient = format;
}
const Case kFormats[] = {
    {"rows, attention",
     [](recipe::Recipe& r) {
       set_products(r, "fp8_row");
       r.products.attention = "fp8_row";
     }},
    {"at random, rotated",
     [](recipe::Recipe& r) {
       set_products(r, "mxfp4_up");
       r.products.gradient_rounding = r.products.activation_rounding = "stochastic";
       r.products.weight_rotation = r.products.input_rotation = 16;
     }},
    {"delayed, accumulated",
     [](recipe::Recipe& r) {
       set_products(r, "fp8_e4m3");
       r.products.activation_scale = r.products.weight_scale = r.products.gradient_scale = "delayed";
       r.accumulate = 2;
     }},
    {"predicted",
     [](recipe::Recipe& r) {
       set_products(r, "fp8_tensor");
       r.products.weight_scale = "predicted";
     }},
    {"learned of weights",
     [](recipe::Recipe& r) {
       set_products(r, "fp8_row");
       r.products.weight = "int8_row";
       r.products.weight_scale = "learned";
     }},
};

struct Outcome {
  std::vector<double> losses, norms, validation;
  std::map<std::string, std::vector<float>> weights;
  std::map<std::string, std::string> files;
};

// Six steps, from the fourth on by another trainer that goes on from a checkpoint.
Outcome run_of(run::Engine& engine, recipe::Recipe recipe, const graph::Config& config, const std::string& offload,
               const std::string& folder) {
  recipe.offload = offload;
  const fs::path out = fresh_folder(folder);
  recipe.run_folder = out.string();
  Outcome run;
  fs::path saved;
  const auto step = [&](Trainer& trainer) {
    const Trainer::Step s = trainer.step();
    run.losses.push_back(s.loss);
    run.norms.push_back(s.norm);
  };
  {
    Trainer first(engine, small_model(config), recipe, small_data());
    run.validation.push_back(first.evaluate(3));
    for (int i = 0; i < 3; ++i) step(first);
    saved = first.save(out);
  }
  Trainer second(engine, small_model(config), recipe, small_data());
  (void)second.step();
  second.restore(saved);
  for (int i = 0; i < 3; ++i) step(second);
  run.validation.push_back(second.evaluate(0));
  const fs::path last = second.save(out);
  for (const char* name : {"model.safetensors", "optimizer.safetensors"}) run.files[name] = read_file(last / name);
  second.finish();
  for (const auto& [name, w] : second.model().weights) run.weights[name] = {w.f32().begin(), w.f32().end()};
  return run;
}

// The largest difference of weights, by the size of the largest move of all.
double distance(const Outcome& a, const Outcome& b) {
  double most = 0;
  for (const auto& [name, numbers] : a.weights)
    for (size_t i = 0; i < numbers.size(); ++i)
      most = std::max(most, std::fabs(double{numbers[i]} - b.weights.at(name)[i]));
  return most;
}

// `near`: how far losses may be from each other, norms five times as far.
void expect_alike(const std::string& name, const Outcome& whole, const Outcome& layers, double near) {
  ASSERT_EQ(whole.losses.size(), layers.losses.size());
  for (size_t i = 0; i < whole.losses.size(); ++i) {
    EXPECT_NEAR(layers.losses[i], whole.losses[i], near * whole.losses[i]) << name << " " << i;
    EXPECT_NEAR(layers.norms[i], whole.norms[i], 5 * near * whole.norms[i]) << name << " " << i;
  }
  for (size_t i = 0; i < whole.validation.size(); ++i)
    EXPECT_NEAR(layers.validation[i], whole.validation[i], near * whole.validation[i]) << name;
  fmt::print("{}: first loss differs by {:.3g}, first norm by {:.3g}, last loss by {:.3g}, weights by {:.3g} at most\n",
             name, std::fabs(layers.losses[0] / whole.losses[0] - 1), std::fabs(layers.norms[0] / whole.norms[0] - 1),
             std::fabs(layers.losses.back() / whole.losses.back() - 1), distance(whole, layers));
}

TEST(LayerStep, TrainsAsWholeStepsDo) {
  run::Engine engine = make_engine(2);
  for (const Case& c : kCases) {
    recipe::Recipe recipe = small_recipe();
    c.change(recipe);
    const Outcome whole = run_of(engine, recipe, c.config, "", "whole");
    expect_alike(c.name, whole, run_of(engine, recipe, c.config, "layers", "layers"), 2e-5);
    expect_alike(c.name, whole, run_of(engine, recipe, c.config, "activations", "activations"), 2e-5);
  }
}

// What is drawn, rotated and remembered is what it is in a whole step: other numbers would be far from those.
// Products add in one order whatever their shape. Where bf16 units multiply, plans differ with the shape, and another
// order of sums ends in other codes, and soon in other losses.
run::Engine engine_without_units() {
#if defined(__x86_64__)
  const machine::MachineRef machine = machine::find_machine("x86-64-v3");
#else
  const machine::MachineRef machine = nullptr;
#endif
  return run::Engine(run::Engine::Options{
      .cache_folder = (fs::temp_directory_path() / "lumen-test-cache").string(), .threads = 2, .machine = machine});
}

TEST(LayerStep, TrainsWithFormatsAsWholeStepsDo) {
  run::Engine engine = engine_without_units();
  for (const Case& c : kFormats) {
    recipe::Recipe recipe = small_recipe();
    c.change(recipe);
    const Outcome whole = run_of(engine, recipe, c.config, "", "whole");
    for (const char* offload : {"layers", "activations"})
      expect_alike(fmt::format("{}, {}", c.name, offload), whole, run_of(engine, recipe, c.config, offload, offload),
                   2e-5);
  }
}

// Where things lie changes no bits, and neither does what is computed again.
TEST(LayerStep, KeepsActivationsElsewhereWithTheSameBits) {
  recipe::Recipe recipe = small_recipe();
  recipe.precision = "bf16";
  recipe.accumulate = 2;
  run::Engine two = make_engine(2), one = make_engine(1);
  const Outcome again = run_of(two, recipe, {}, "layers", "again");
  recipe.recompute = "layers";
  EXPECT_EQ(run_of(two, recipe, {}, "layers,activations", "handed").files, again.files);
  EXPECT_EQ(run_of(two, recipe, {}, "activations", "handed-here").files, again.files);
  recipe.recompute = "none";
  const Outcome kept = run_of(two, recipe, {}, "activations", "kept");
  EXPECT_EQ(run_of(one, recipe, {}, "activations,layers", "one").files, kept.files) << "threads";
  const fs::path other = fresh_folder("other");
  EXPECT_EQ(run_of(two, recipe, {}, "moments,activations=" + other.string(), "two").files, kept.files);
  EXPECT_TRUE(fs::is_empty(other));
  run::StandIn fake(run::GpuVendor::cuda);
  fake.run_machine_code();
  run::Engine there(run::Engine::Options{.cache_folder = (fs::temp_directory_path() / "lumen-test-cache").string(),
                                         .threads = 1,
                                         .machine = machine::native_machine(),
                                         .device = fake.device(),
                                         .tries = false});
  for (const char* place : {"activations=host", "layers=host,activations"})
    EXPECT_EQ(run_of(there, recipe, {}, place, "gpu").files, kept.files) << place;
  // Kept in a format: as in a whole step, but for what that reads again so soon that it keeps it as it is.
  recipe.kept = "fp8_row";
  expect_alike("kept", run_of(two, recipe, {}, "", "whole"), run_of(two, recipe, {}, "activations", "kept"), 1e-2);
}

TEST(LayerStep, GivesItsOwnBitsAgain) {
  recipe::Recipe recipe = small_recipe();
  recipe.param_type = "bf16";
  recipe.optimizer.moments = "mxfp8_e4m3";
  recipe.precision = "bf16";
  run::Engine two = make_engine(2), one = make_engine(1);
  const Outcome expected = run_of(two, recipe, {}, "layers", "two");
  EXPECT_EQ(run_of(one, recipe, {}, "layers", "one").files, expected.files) << "threads";
  run::StandIn fake(run::GpuVendor::cuda);
  fake.run_machine_code();
  run::Engine there(run::Engine::Options{.cache_folder = (fs::temp_directory_path() / "lumen-test-cache").string(),
                                         .threads = 1,
                                         .machine = machine::native_machine(),
                                         .device = fake.device(),
                                         .tries = false});
  for (const char* place : {"layers=host", "layers,moments=host"})
    EXPECT_EQ(run_of(there, recipe, {}, place, "gpu").files, expected.files) << place;
  EXPECT_EQ(run_of(two, recipe, {}, "layers,moments=host", "mixed").files, expected.files);
}

TEST(LayerStep, TakesTheMemoryThatWasForecast) {
  recipe::Recipe recipe = small_recipe();
  recipe.batch = 1;
  const graph::Config config = {{"hidden", 128}, {"layers", 12}, {"ffn", 512}, {"head_dim", 32}};
  std::map<std::string, int64_t> peaks;
  for (const auto& [offload, recompute] : {std::pair("", "none"),
                                           {"layers", "none"},
                                           {"activations", "none"},
                                           {"activations", "maps"},
                                           {"layers,activations", "layers"}}) {
    recipe.offload = offload;
    recipe.recompute = recompute;
    recipe.batch = std::string(offload).find("activations") == std::string::npos ? 1 : 8;
    recipe.run_folder = fresh_folder("forecast").string();
    run::Engine engine = make_engine(2);
    arch::Model model = small_model(config);
    const TrainingForecast f = forecast_training(engine, model, recipe);
    Trainer trainer(engine, std::move(model), recipe, small_data());
    for (int i = 0; i < 2; ++i) (void)trainer.step();
    (void)trainer.evaluate(2);
    const int64_t taken = peaks[recipe.offload] = engine.device().memory().peak;
    EXPECT_GE(f.total(), taken * 97 / 100) << offload << " " << recompute;
    EXPECT_LE(f.total(), taken * 103 / 100) << offload << " " << recompute;
    EXPECT_EQ(f.offloaded > 0, !recipe.offload.empty());
  }
  EXPECT_LT(peaks["layers"] * 2, peaks[""]);
}

TEST(LayerStep, RefusesWhatNeedsAllParameters) {
  run::Engine engine = make_engine(1);
  const auto refused = [&](const std::function<void(recipe::Recipe&)>& change) {
    recipe::Recipe recipe = small_recipe();
    recipe.offload = "layers";
    change(recipe);
    try {
      const Trainer trainer(engine, small_model(), recipe, small_data());
    } catch (const Error& e) {
      return std::string(e.what());
    }
    return std::string();
  };
  EXPECT_NE(refused([](recipe::Recipe& r) { r.adapter.method = "lora"; }).find("an adapter"), std::string::npos);
  EXPECT_NE(refused([](recipe::Recipe& r) { r.optimizer.ema_decay = 0.9; }).find("a mean"), std::string::npos);
  EXPECT_NE(refused([](recipe::Recipe& r) { r.kept = "fp8_row"; }).find("memory.kept"), std::string::npos);
  const auto by_activations = [](const std::function<void(recipe::Recipe&)>& change) {
    return [change](recipe::Recipe& r) {
      r.offload = "activations";
      change(r);
    };
  };
  EXPECT_NE(refused(by_activations([](recipe::Recipe& r) { r.adapter.method = "lora"; })).find("go by layers"),
            std::string::npos);
  EXPECT_NE(refused(by_activations([](recipe::Recipe& r) { r.recompute = "auto"; })).find("--recompute auto"),
            std::string::npos);
  EXPECT_EQ(refused(by_activations([](recipe::Recipe& r) { r.optimizer.ema_decay = 0.9; })), "");
}

}  // namespace
}  // namespace lumen::model::train
