// needs: none. Formats for the operands of products in training: recipes train as 16 bits do, resume bit for bit with
// the scales they remember, on any number of threads; bounds of weights hold.
#include <gtest/gtest.h>

#include <cmath>

#include "base/error.h"
#include "model/file/checkpoint.h"
#include "model/train/loop/loop.h"
#include "model/train/trainer/trainer.h"
#include "tests/model/tiny.h"
#include "tests/model/train/training_case.h"

namespace lumen::model {
namespace {

struct Fresh {
  Model model;
  std::shared_ptr<Dataset> data;
  explicit Fresh(uint32_t seed = 3) {
    const Tokenizer tokenizer = Tokenizer::characters(training_text());
    data = std::make_shared<Dataset>(Dataset::from_text(training_text(), tokenizer));
    const FamilyRef family = test_library()->family("llama");
    model = initialise(
        family, family->config("tiny", {{"vocab", static_cast<double>(tokenizer.size())}, {"kv_heads", 4}}), seed);
    model.tokenizer = tokenizer;
  }
};

// Recipes that say what operands pass through.
std::vector<std::string> product_recipes() {
  std::vector<std::string> out;
  for (const std::string& name : test_library()->recipe_names())
    if (parse_recipe(test_library()->recipe(name)->text, name).products.activation != "") out.push_back(name);
  return out;
}

Recipe recipe_of(const std::string& name) {
  Recipe small = small_recipe();
  small.optimizer.beta2 = 0.95;
  Recipe r = parse_recipe(test_library()->recipe(name)->text, name, small);
  r.length = 32;  // blocks along tokens
  return r;
}

TEST(ProductRecipes, TrainAsSixteenBitsDo) {
  run::Engine engine = make_engine(2);
  const Fresh s;
  Recipe plain = small_recipe();
  plain.precision = "bf16";
  plain.length = 32;
  Trainer reference(engine, s.model, plain, s.data);
  const double want = run_training(reference, {}).validation_loss;
  const std::vector<std::string> names = product_recipes();
  EXPECT_GE(names.size(), 11u);
  for (const std::string& name : names) {
    Recipe r = recipe_of(name);
    r.optimizer = plain.optimizer;
    Trainer trainer(engine, s.model, r, s.data);
    const double loss = run_training(trainer, {}).validation_loss;
    EXPECT_NE(loss, want) << name;
    EXPECT_NEAR(loss, want, 0.15 * want) << name;
  }
}

TEST(ProductRecipes, ResumeBitForBitOnAnyNumberOfThreads) {
  const Fresh s;
  for (const char* name : {"moss", "fp8-delayed", "mxfp4-training"}) {
    run::Engine engine = make_engine(2), single = make_engine(1);
    const Recipe recipe = recipe_of(name);
    Trainer straight(engine, s.model, recipe, s.data);
    for (int i = 0; i < 5; ++i) (void)straight.step();
    const TestFolder folder;
    Trainer first(single, s.model, recipe, s.data);
    for (int i = 0; i < 3; ++i) (void)first.step();
    const auto saved = first.save(folder.path());
    const Fresh other(99);
    Trainer second(engine, other.model, recipe, s.data);
    second.restore(saved);
    for (int i = 0; i < 2; ++i) (void)second.step();
    EXPECT_EQ(weights_of(second), weights_of(straight)) << name;
  }
}

// MOSS, section 3.2: no weight is beyond its bound, and the bound is not far beyond the largest weight; with a true
// maximum every step it is that maximum.
TEST(ProductRecipes, BoundsOfWeightsHold) {
  run::Engine engine = make_engine(2);
  const Fresh s;
  for (const char* optimizer : {"adamw", "lion"}) {
    for (const int64_t every : {1, 10}) {
      Recipe r = recipe_of("moss");
      r.optimizer = small_recipe().optimizer;
      r.optimizer.name = optimizer;
      r.schedule.peak = 1e-3;
      r.products.rescale_every = every;
      Trainer trainer(engine, s.model, r, s.data);
      for (int i = 0; i < 12; ++i) {
        (void)trainer.step();
        const TestFolder folder;
        const Checkpoint c = load_checkpoint(trainer.save(folder.path()), test_library()->formats());
        for (const Parameter& p : s.model.parameters) {
          if (p.shape.size() < 2) continue;
          const std::vector<uint8_t> bytes = c.optimizer->get(graph::kLargestState + p.name).blob();
          float bound = 0, largest = 0;
          ASSERT_GE(bytes.size(), sizeof bound);
          std::memcpy(&bound, bytes.data(), sizeof bound);
          const std::vector<uint8_t> weight = c.weights->get(p.name).blob();
          for (int64_t k = 0; k < graph::elements(p.shape).number(); ++k) {
            float v = 0;
            std::memcpy(&v, weight.data() + 4 * k, sizeof v);
            largest = std::max(largest, std::fabs(v));
          }
          if (every == 1) {
            ASSERT_EQ(bound, largest) << optimizer << " " << p.name << " after step " << i + 1;
          }
          ASSERT_GE(bound, largest) << optimizer << " " << p.name << " after step " << i + 1;
          ASSERT_LE(bound, 1.25 * largest) << optimizer << " " << p.name << " after step " << i + 1;
        }
      }
    }
  }
}

TEST(ProductRecipes, WhatCannotBeIsSaid) {
  run::Engine engine = make_engine(1);
  const Fresh s;
  const auto refused = [&](const std::function<void(Recipe&)>& change) {
    Recipe r = recipe_of("moss");
    r.optimizer = small_recipe().optimizer;
    change(r);
    try {
      Trainer trainer(engine, s.model, r, s.data);
    } catch (const Error& e) {
      return std::string(e.what());
    }
    return std::string("taken");
  };
  EXPECT_EQ(refused([](Recipe&) {}), "taken");
  EXPECT_NE(refused([](Recipe& r) { r.optimizer.name = "sgd"; }).find("how far a step moves a weight is not known"),
            std::string::npos);
  EXPECT_NE(refused([](Recipe& r) { r.products.weight = "fp8_row"; }).find("more scales than one"), std::string::npos);
  EXPECT_NE(refused([](Recipe& r) {
              r.products.weight_scale = "fitted";
              r.products.forward_rotation = 256;
              r.products.weight = "fp8_row";
            }).find("runs of 256"),
            std::string::npos);
  EXPECT_NE(refused([](Recipe& r) {
              r.products.gradient = "nf4";
              r.products.gradient_rounding = "stochastic";
            }).find("looks its codes up in a table"),
            std::string::npos);
}

}  // namespace
}  // namespace lumen::model
