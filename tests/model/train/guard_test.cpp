// needs: none. The numeric guard: nothing that is not finite is saved, taken for good, or begun with.
#include "model/train/trainer/guard.h"

#include <cmath>
#include <fstream>
#include <limits>

#include "base/error.h"
#include "model/train/loop/loop.h"
#include "tests/model/tiny.h"
#include "tests/model/train/training_case.h"

namespace lumen::model::train {
namespace {

namespace fs = std::filesystem;

struct Start {
  arch::Model model;
  std::shared_ptr<data::Dataset> data;
  Start() {
    const text::Tokenizer tokenizer = text::Tokenizer::characters(training_text());
    data = std::make_shared<data::Dataset>(data::Dataset::from_text(training_text(), tokenizer));
    const arch::FamilyRef family = test_library()->family("llama");
    model = initialise(family, family->config("tiny", {{"vocab", static_cast<double>(tokenizer.size())}}), 3);
    model.tokenizer = tokenizer;
  }
};

Error numeric_error(const std::function<void()>& action) {
  try {
    action();
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), Exit::numeric) << e.what();
    EXPECT_FALSE(e.hint().empty()) << e.what();
    return e;
  }
  ADD_FAILURE() << "no error";
  return Error(Exit::ok, "");
}

std::vector<std::string> names(const fs::path& folder) {
  std::vector<std::string> out;
  for (const auto& entry : fs::directory_iterator(folder)) out.push_back(entry.path().filename().string());
  std::sort(out.begin(), out.end());
  return out;
}

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

// A good checkpoint, then a rate that ruins the weights in one step whose own loss and gradients are finite.
TEST(Guard, ARuinousStepIsNeverSaved) {
  const Start s;
  const TestFolder folder;
  recipe::Recipe recipe = small_recipe();
  recipe.keep = 1;
  recipe.save_every = 1;
  recipe.schedule = {.shape = recipe::Schedule::Shape::constant, .peak = 1e-3, .floor = 0, .warmup = 0, .steps = 3};
  LoopOptions o;
  o.out = folder.path();
  Trainer good(engine(), s.model, recipe, s.data);
  (void)run_training(good, o);
  ASSERT_EQ(file::list_checkpoints(folder.path()).size(), 1U);
  const fs::path last = *file::latest_checkpoint(folder.path());
  const auto before = file::load_checkpoint(last, test_library()->formats()).state.step;

  recipe.schedule.peak = 1e30;
  recipe.schedule.steps = 10;
  Trainer bad(engine(), s.model, recipe, s.data);
  bad.restore(last);
  const Error e = numeric_error([&] { (void)run_training(bad, o); });
  EXPECT_TRUE(contains(e.hint(), last.string())) << e.hint();
  EXPECT_EQ(file::list_checkpoints(folder.path()), std::vector<fs::path>{last})
      << "the good one stays, with --keep 1 too";
  EXPECT_EQ(file::load_checkpoint(last, test_library()->formats()).state.step, before);
  for (const std::string& name : names(folder.path())) EXPECT_NE(name[0], '.') << name;
  // What has diverged cannot be saved by other ways.
  (void)numeric_error([&] { (void)bad.save(folder.path()); });
}

// Weights that are fine by themselves, but with which the next step cannot be made: here because its products are
// rounded to a type that does not hold them. Saved in good faith, removed when that shows.
TEST(Guard, ACheckpointThatLeadsNowhereGoes) {
  const Start s;
  const TestFolder folder;
  recipe::Recipe recipe = small_recipe();
  recipe.keep = 1;
  recipe.save_every = 1;
  recipe.schedule = {.shape = recipe::Schedule::Shape::constant, .peak = 1e-3, .floor = 0, .warmup = 0, .steps = 2};
  LoopOptions o;
  o.out = folder.path();
  Trainer good(engine(), s.model, recipe, s.data);
  (void)run_training(good, o);
  recipe.precision = "f16";
  recipe.schedule.peak = 1e6;
  recipe.schedule.steps = 10;
  Trainer bad(engine(), s.model, recipe, s.data);
  bad.restore(folder / "checkpoint-2");
  const Error e = numeric_error([&] { (void)run_training(bad, o); });
  EXPECT_TRUE(contains(e.what(), "step 4") && contains(e.what(), "checkpoint-3")) << e.what();
  EXPECT_TRUE(contains(e.hint(), "checkpoint-2")) << e.hint();
  EXPECT_EQ(file::list_checkpoints(folder.path()), std::vector<fs::path>{folder / "checkpoint-2"});
}

// The last step of a run is followed by no other: its weights are tried, too.
TEST(Guard, TheEndOfARunIsProved) {
  const Start s;
  const TestFolder folder;
  recipe::Recipe recipe = small_recipe();
  recipe.schedule = {.shape = recipe::Schedule::Shape::constant, .peak = 1e30, .floor = 0, .warmup = 0, .steps = 1};
  Trainer trainer(engine(), s.model, recipe, s.data);
  LoopOptions o;
  o.out = folder.path();
  const Error e = numeric_error([&] { (void)run_training(trainer, o); });
  EXPECT_TRUE(contains(e.what(), "after step 1")) << e.what();
  EXPECT_TRUE(contains(e.hint(), "nothing was saved")) << e.hint();
  EXPECT_EQ(names(folder.path()), std::vector<std::string>{"metrics.jsonl"});
}

// Older checkpoints go when the step after the newest was good, not before.
TEST(Guard, TheOldestGoesLate) {
  const Start s;
  const TestFolder folder;
  recipe::Recipe recipe = small_recipe();
  recipe.keep = 1;
  recipe.save_every = 2;
  recipe.schedule.steps = 5;
  Trainer trainer(engine(), s.model, recipe, s.data);
  LoopOptions o;
  o.out = folder.path();
  (void)run_training(trainer, o);
  EXPECT_EQ(file::list_checkpoints(folder.path()), std::vector<fs::path>{folder / "checkpoint-5"});
}

// A signal that comes when all steps are done: saved, and not held up by the evaluation.
TEST(Guard, StopsBeforeTheLastEvaluation) {
  const Start s;
  const TestFolder folder;
  recipe::Recipe recipe = small_recipe();
  recipe.schedule.steps = 1;
  Trainer trainer(engine(), s.model, recipe, s.data);
  (void)trainer.step();
  const std::atomic<bool> stop{true};
  LoopOptions o;
  o.out = folder.path();
  o.stop = &stop;
  const LoopResult r = run_training(trainer, o);
  EXPECT_TRUE(r.interrupted);
  EXPECT_EQ(r.validation_loss, 0);
  EXPECT_EQ(r.checkpoint, folder / "checkpoint-1");
}

TEST(Guard, ACheckpointWithANaNIsRefusedByName) {
  const Start s;
  const TestFolder folder;
  const recipe::Recipe recipe = small_recipe();
  Trainer trainer(engine(), s.model, recipe, s.data);
  (void)trainer.step();
  const fs::path saved = trainer.save(folder.path());
  // Written again with one number changed, so that hashes agree.
  const file::Checkpoint c = file::load_checkpoint(saved, test_library()->formats());
  for (const bool moment : {false, true}) {
    const std::string victim = moment ? recipe::optimizer_state("v", "layers.1.wq") : "layers.1.wq";
    file::CheckpointContent content;
    content.state = c.state;
    content.state.step = moment ? 8 : 7;
    for (const auto& t : c.weights->tensors()) content.weights.push_back(t);
    for (const auto& t : c.optimizer->tensors()) content.optimizer.push_back(t);
    std::vector<uint8_t> blob;
    content.fetch = [&](const file::TensorSpec& spec) {
      const file::StoredTensor* t = c.weights->find(spec.name);
      blob = (t ? t : c.optimizer->find(spec.name))->blob();
      const float nan = std::numeric_limits<float>::quiet_NaN();
      if (spec.name == victim) std::memcpy(blob.data() + 8, &nan, sizeof nan);
      return std::span<const uint8_t>(blob);
    };
    const fs::path broken = save_checkpoint(folder.path(), content);
    Trainer other(engine(), s.model, recipe, s.data);
    const Error e = numeric_error([&] { other.restore(broken); });
    EXPECT_TRUE(contains(e.what(), "'" + victim + "'")) << e.what();
    EXPECT_TRUE(contains(e.what(), broken.string())) << e.what();
    EXPECT_EQ(other.done(), 0);
  }
}

TEST(Guard, AModelWithANaNIsRefusedByName) {
  Start s;
  arch::Weight& w = s.model.weights.at("layers.0.wk");
  std::vector<float> values(w.f32().begin(), w.f32().end());
  values[5] = std::numeric_limits<float>::quiet_NaN();
  w = arch::f32_weight(w.type.shape, values);
  const Error e = numeric_error([&] { Trainer(engine(), s.model, small_recipe(), s.data); });
  EXPECT_TRUE(contains(e.what(), "'layers.0.wk'")) << e.what();
}

TEST(Guard, RecipesWithNumbersThatAreNone) {
  const double nan = std::numeric_limits<double>::quiet_NaN(), inf = std::numeric_limits<double>::infinity();
  const std::vector<std::function<void(recipe::Recipe&)>> wrong = {
      [&](recipe::Recipe& r) { r.schedule.peak = nan; },
      [&](recipe::Recipe& r) { r.schedule.peak = inf; },
      [&](recipe::Recipe& r) { r.schedule.peak = -1; },
      [&](recipe::Recipe& r) { r.schedule.floor = nan; },
      [&](recipe::Recipe& r) { r.optimizer.beta1 = nan; },
      [&](recipe::Recipe& r) { r.optimizer.beta1 = 1; },
      [&](recipe::Recipe& r) { r.optimizer.beta2 = 2; },
      [&](recipe::Recipe& r) { r.optimizer.epsilon = 0; },
      [&](recipe::Recipe& r) { r.optimizer.weight_decay = inf; },
      [&](recipe::Recipe& r) { r.optimizer.max_norm = nan; },
      [&](recipe::Recipe& r) { r.batch = 0; },
      [&](recipe::Recipe& r) { r.batch = INT64_MAX; },
      [&](recipe::Recipe& r) { r.accumulate = 0; },
      [&](recipe::Recipe& r) { r.schedule.steps = INT64_MAX; },
      [&](recipe::Recipe& r) { r.validation = nan; },
      [&](recipe::Recipe& r) { r.schedule.floor = 1; },
  };
  EXPECT_NO_THROW(check_recipe(small_recipe()));
  for (size_t i = 0; i < wrong.size(); ++i) {
    recipe::Recipe r = small_recipe();
    wrong[i](r);
    try {
      check_recipe(r);
      ADD_FAILURE() << i;
    } catch (const Error& e) {
      EXPECT_EQ(e.code(), Exit::usage) << e.what();
    }
  }
  for (const char* text : {"[schedule]\nlearning_rate = nan\n", "[schedule]\nlearning_rate = inf\n",
                           "[optimizer]\nbeta2 = 1.0\n", "[run]\nbatch = 0\n", "[schedule]\nsteps = -4\n"}) {
    try {
      (void)recipe::parse_recipe(text, "r.toml");
      ADD_FAILURE() << text;
    } catch (const Error& e) {
      EXPECT_TRUE(contains(e.what(), "r.toml:2:")) << e.what();
    }
  }
}

TEST(Guard, FindsTheFirst) {
  const float inf = std::numeric_limits<float>::infinity();
  EXPECT_FALSE(first_not_finite(std::vector<float>{0, -1, 3e38F}));
  EXPECT_EQ(first_not_finite(std::vector<float>{0, -inf, inf}), 1U);
}

}  // namespace
}  // namespace lumen::model::train
