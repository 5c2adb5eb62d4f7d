// needs: none. Formats for the operands of products in training: recipes train as 16 bits do, resume bit for bit with
// the scales they remember, on any number of threads; bounds of weights hold.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "base/error.h"
#include "model/file/checkpoint.h"
#include "model/train/loop/loop.h"
#include "model/train/trainer/trainer.h"
#include "tests/model/tiny.h"
#include "tests/model/train/training_case.h"

namespace lumen::model::train {
namespace {

struct Fresh {
  arch::Model model;
  std::shared_ptr<data::Dataset> data;
  explicit Fresh(uint32_t seed = 3) {
    const text::Tokenizer tokenizer = text::Tokenizer::characters(training_text());
    data = std::make_shared<data::Dataset>(data::Dataset::from_text(training_text(), tokenizer));
    const arch::FamilyRef family = test_library()->family("llama");
    model = initialise(
        family, family->config("tiny", {{"vocab", static_cast<double>(tokenizer.size())}, {"kv_heads", 4}}), seed);
    model.tokenizer = tokenizer;
  }
};

// Recipes that say what operands pass through.
std::vector<std::string> product_recipes() {
  std::vector<std::string> out;
  for (const std::string& name : test_library()->recipe_names())
    if (recipe::parse_recipe(test_library()->recipe(name)->text, name).products.activation != "") out.push_back(name);
  return out;
}

recipe::Recipe recipe_of(const std::string& name) {
  recipe::Recipe small = small_recipe();
  small.optimizer.beta2 = 0.95;
  recipe::Recipe r = parse_recipe(test_library()->recipe(name)->text, name, small);
  r.length = 32;  // blocks along tokens
  return r;
}

std::string refusal(const std::function<void()>& work) {
  try {
    work();
  } catch (const Error& e) {
    return e.what();
  }
  return "taken";
}

TEST(ProductRecipes, TrainAsSixteenBitsDo) {
  run::Engine engine = make_engine(2);
  const Fresh s;
  recipe::Recipe plain = small_recipe();
  plain.precision = "bf16";
  plain.length = 32;
  Trainer reference(engine, s.model, plain, s.data);
  const double want = run_training(reference, {}).validation_loss;
  const std::vector<std::string> names = product_recipes();
  EXPECT_GE(names.size(), 12u);
  for (const std::string& name : names) {
    recipe::Recipe r = recipe_of(name);
    r.optimizer = plain.optimizer;
    Trainer trainer(engine, s.model, r, s.data);
    const double loss = run_training(trainer, {}).validation_loss;
    EXPECT_NE(loss, want) << name;
    // Scales that are learned trail fresh weights, which grow by a tenth of themselves in each of these steps.
    EXPECT_NEAR(loss, want, (r.products.learns() ? 0.3 : 0.15) * want) << name;
  }
}

TEST(ProductRecipes, ResumeBitForBitOnAnyNumberOfThreads) {
  const Fresh s;
  for (const char* name : {"moss", "fp8-delayed", "mxfp4-training", "int8-learned"}) {
    run::Engine engine = make_engine(2), single = make_engine(1);
    const recipe::Recipe recipe = recipe_of(name);
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
      recipe::Recipe r = recipe_of("moss");
      r.optimizer = small_recipe().optimizer;
      r.optimizer.name = optimizer;
      r.schedule.peak = 1e-3;
      r.products.rescale_every = every;
      Trainer trainer(engine, s.model, r, s.data);
      for (int i = 0; i < 12; ++i) {
        (void)trainer.step();
        const TestFolder folder;
        const file::Checkpoint c = file::load_checkpoint(trainer.save(folder.path()), test_library()->formats());
        for (const arch::Parameter& p : s.model.parameters) {
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

// Numbers of a checkpoint.
std::vector<float> numbers_of(const file::Checkpoint& c, const std::string& name) {
  const std::vector<uint8_t> bytes = c.weights->get(name).blob();
  std::vector<float> out(bytes.size() / sizeof(float));
  std::memcpy(out.data(), bytes.data(), out.size() * sizeof(float));
  return out;
}

// Weights in 16 bits have bounds, too; what is held in a format has one where it is looked at after every step.
TEST(ProductRecipes, BoundsOfHeldWeightsHold) {
  run::Engine engine = make_engine(2);
  const Fresh s;
  for (const char* type : {"bf16", "f16", "fp8_row"})
    for (const int64_t every : {1, 4}) {
      recipe::Recipe r = recipe_of("moss");
      r.optimizer = small_recipe().optimizer;
      r.schedule.peak = 1e-3;
      r.param_type = type;
      r.products.rescale_every = every;
      if (type == std::string("fp8_row") && every > 1) {
        EXPECT_NE(refusal([&] { Trainer(engine, s.model, r, s.data); }).find("the largest change by rounding"),
                  std::string::npos);
        continue;
      }
      Trainer trainer(engine, s.model, r, s.data);
      for (int i = 0; i < 7; ++i) {
        (void)trainer.step();
        const TestFolder folder;
        const file::Checkpoint c = file::load_checkpoint(trainer.save(folder.path()), test_library()->formats());
        const arch::Model now = trainer.model();
        for (const arch::Parameter& p : s.model.parameters) {
          if (p.shape.size() < 2) continue;
          const std::vector<uint8_t> bytes = c.optimizer->get(graph::kLargestState + p.name).blob();
          float bound = 0, largest = 0;
          std::memcpy(&bound, bytes.data(), sizeof bound);
          for (const float v : now.weights.at(p.name).f32()) largest = std::max(largest, std::fabs(v));
          ASSERT_GE(bound, largest) << type << " " << p.name << " after step " << i + 1;
          ASSERT_LE(bound, (every == 1 ? 1 : 1.25) * largest) << type << " " << p.name << " after step " << i + 1;
        }
      }
    }
}

// Scales that are learned begin with what fits: of a weight its rows, of an activation the first batch; they move by
// parts of themselves, and a group changes their rate or holds them still.
TEST(ProductRecipes, LearnedScalesBeginFittedAndMove) {
  run::Engine engine = make_engine(2);
  const Fresh s;
  recipe::Recipe r = recipe_of("int8-learned");
  r.optimizer = small_recipe().optimizer;
  r.products.attention = "fp8_tensor";
  r.products.attention_scale = "learned";
  r.schedule = {.shape = recipe::Schedule::Shape::constant, .peak = 1e-2, .floor = 0, .warmup = 0, .steps = 20};
  recipe::ParameterGroup still;
  still.values = {"layers.1.*.activation_scale"};
  still.frozen = true;
  r.groups.push_back(still);
  Trainer trainer(engine, s.model, r, s.data);
  std::map<std::string, std::vector<float>> before;
  const auto scales = [&](int steps) {
    for (int i = 0; i < steps; ++i) (void)trainer.step();
    const TestFolder folder;
    const file::Checkpoint c = file::load_checkpoint(trainer.save(folder.path()), test_library()->formats());
    std::map<std::string, std::vector<float>> out;
    for (const file::StoredTensor& t : c.weights->tensors())
      if (t.name.ends_with("_scale")) out[t.name] = numbers_of(c, t.name);
    return out;
  };
  const auto at_first = scales(0);
  ASSERT_EQ(at_first.count("layers.0.wq.activation_scale"), 1u);
  EXPECT_EQ(at_first.count("layers.0.wk.activation_scale"), 0u) << "what q, k and v read is one activation";
  EXPECT_EQ(at_first.count("layers.0.wk.attention_scale"), 1u);
  EXPECT_EQ(at_first.at("layers.0.wq.activation_scale"), std::vector<float>{0}) << "not known before the first batch";
  const std::span<const float> w = s.model.weights.at("layers.0.wq").f32();
  const std::vector<float>& rows = at_first.at("layers.0.wq.weight_scale");
  const int64_t columns = std::ssize(w) / std::ssize(rows);
  for (int64_t row = 0; row < std::ssize(rows); ++row) {
    float most = 0;
    for (int64_t c = 0; c < columns; ++c) most = std::max(most, std::fabs(w[row * columns + c]));
    ASSERT_FLOAT_EQ(rows[row], most / 127) << row;
  }
  const auto after = scales(1), later = scales(6);
  for (const auto& [name, now] : after) {
    const bool is_still = name.starts_with("layers.1.") && name.ends_with("activation_scale");
    for (size_t i = 0; i < now.size(); ++i) {
      ASSERT_GT(now[i], 0) << name;
      // AdamW's first step is by the rate, or less where a gradient is small beside its epsilon.
      const float was = at_first.at(name)[i], moved = std::fabs(now[i] / was - 1);
      if (was == 0) continue;
      ASSERT_GT(moved, 1e-5) << name << " " << i;
      ASSERT_LT(moved, 1.001e-2) << name << " " << i;
    }
    EXPECT_EQ(later.at(name) == now, is_still) << name;
  }
}

TEST(ProductRecipes, WhatCannotBeIsSaid) {
  run::Engine engine = make_engine(1);
  const Fresh s;
  const auto refused = [&](const std::function<void(recipe::Recipe&)>& change) {
    recipe::Recipe r = recipe_of("moss");
    r.optimizer = small_recipe().optimizer;
    change(r);
    try {
      Trainer trainer(engine, s.model, r, s.data);
    } catch (const Error& e) {
      return std::string(e.what());
    }
    return std::string("taken");
  };
  EXPECT_EQ(refused([](recipe::Recipe&) {}), "taken");
  EXPECT_NE(refused([](recipe::Recipe& r) {
              r.optimizer.name = "sgd";
            }).find("the largest change of a weight by a step is unknown"),
            std::string::npos);
  EXPECT_NE(refused([](recipe::Recipe& r) { r.products.weight = "fp8_row"; }).find("more scales than one"),
            std::string::npos);
  EXPECT_NE(refused([](recipe::Recipe& r) {
              r.products.weight_scale = "fitted";
              r.products.forward_rotation = 256;
              r.products.weight = "fp8_row";
            }).find("runs of 256"),
            std::string::npos);
  EXPECT_NE(refused([](recipe::Recipe& r) {
              r.products.gradient = "nf4";
              r.products.gradient_rounding = "stochastic";
            }).find("looks its codes up in a table"),
            std::string::npos);
  const auto learned = [&](const std::function<void(recipe::Recipe&)>& change) {
    return refused([&](recipe::Recipe& r) {
      r.products = {};
      r.products.activation = "int8";
      r.products.activation_scale = "learned";
      change(r);
    });
  };
  EXPECT_EQ(learned([](recipe::Recipe&) {}), "taken");
  EXPECT_NE(learned([](recipe::Recipe& r) { r.products.activation = "fp8_row"; }).find("belong to tokens"),
            std::string::npos);
  EXPECT_NE(learned([](recipe::Recipe& r) {
              r.products.forward_activation = "none";
            }).find("this operand of the forward pass has no format"),
            std::string::npos);
  EXPECT_NE(
      learned([](recipe::Recipe& r) { r.products.activation_rounding = "stochastic"; }).find("rounded stochastically"),
      std::string::npos);
  EXPECT_NE(learned([](recipe::Recipe& r) { r.products.weight_rotation = 16; }).find("a rotated operand"),
            std::string::npos);
  EXPECT_NE(learned([](recipe::Recipe& r) { r.offload = "layers"; }).find("a step by layers"), std::string::npos);
  EXPECT_NE(learned([](recipe::Recipe& r) { r.adapter.method = "lora"; }).find("no place for scales"),
            std::string::npos);
  const std::string gradients =
      refusal([] { (void)recipe::parse_recipe("[products]\ngradient_scale = \"learned\"\n", "own"); });
  EXPECT_NE(gradients.find("a gradient's scale cannot be learned"), std::string::npos) << gradients;
}

}  // namespace
}  // namespace lumen::model::train
