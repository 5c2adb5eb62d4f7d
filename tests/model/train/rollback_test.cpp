// needs: none. Runs that meet a batch that breaks them, that stop when they get no better, and that keep their best:
// all of it exactly alike when they are resumed.
#include <algorithm>
#include <cmath>
#include <fstream>
#include <limits>

#include "base/error.h"
#include "model/report/metrics.h"
#include "model/train/loop/loop.h"
#include "tests/model/tiny.h"
#include "tests/model/train/training_case.h"

namespace lumen::model::train {
namespace {

namespace fs = std::filesystem;

enum class Poison { none, nan, noise };

// Windows of a text with some batches poisoned: weights that are no numbers, or targets that follow from nothing. With
// `without`, those batches do not exist.
class PoisonedBatches final : public data::Batches {
 public:
  PoisonedBatches(std::shared_ptr<const data::Batches> good, Poison poison, std::vector<int64_t> where,
                  bool without = false)
      : good_(std::move(good)), poison_(poison), where_(std::move(where)), without_(without) {}
  bool has_weights() const override { return true; }
  data::Batch training(int64_t step, int64_t part) const override {
    if (without_)
      for (const int64_t batch : where_) step += batch <= step ? 1 : 0;
    data::Batch b = good_->training(step, part);
    b.weights.assign(b.tokens.size(), 1.0F / static_cast<float>(b.tokens.size()));
    if (without_ || std::find(where_.begin(), where_.end(), step) == where_.end()) return b;
    if (poison_ == Poison::nan) b.weights[3] = std::numeric_limits<float>::quiet_NaN();
    // The rarest letter everywhere.
    if (poison_ == Poison::noise)
      std::fill(b.targets.begin(), b.targets.end(), *std::max_element(b.targets.begin(), b.targets.end()));
    return b;
  }
  int64_t validation_rows() const override { return good_->validation_rows(); }
  data::Batch validation(int64_t first, int64_t rows) const override { return good_->validation(first, rows); }
  void require(double vocabulary) const override { good_->require(vocabulary); }
  const std::vector<data::DataFile>& files() const override { return good_->files(); }
  Hash token_hash() const override { return good_->token_hash(); }

 private:
  std::shared_ptr<const data::Batches> good_;
  Poison poison_;
  std::vector<int64_t> where_;
  bool without_;
};

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
  std::shared_ptr<const data::Batches> batches(const recipe::Recipe& r, Poison poison, std::vector<int64_t> where,
                                               bool without = false) const {
    return std::make_shared<PoisonedBatches>(window_batches(data, r.seed, r.batch, r.length, r.accumulate), poison,
                                             std::move(where), without);
  }
};

recipe::Recipe recipe(int64_t steps) {
  recipe::Recipe r = small_recipe();
  r.schedule.steps = steps;
  r.on_nan = "rollback";
  r.save_every = 5;
  return r;
}

LoopOptions into(const fs::path& out) {
  LoopOptions o;
  o.out = out;
  return o;
}

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

TEST(Rollback, ABatchOfNaNsIsLeftOut) {
  const Start s;
  const TestFolder folder;
  const recipe::Recipe r = recipe(20);
  Trainer without(engine(), s.model, r, s.batches(r, Poison::none, {12}, true));
  for (int64_t i = 0; i < 20; ++i) (void)without.step();

  Trainer whole(engine(), s.model, r, s.batches(r, Poison::nan, {12}));
  (void)run_training(whole, into(folder.path()));
  EXPECT_EQ(whole.state().skipped, std::vector<int64_t>{12});
  EXPECT_EQ(whole.state().rollbacks, 1);
  EXPECT_TRUE(weights_of(whole) == weights_of(without)) << "the run is that of the data without the batch";
  const report::RunLog log = report::read_run_log(folder.path());
  EXPECT_EQ(log.steps.size(), 20U) << "no step is there twice";
  ASSERT_EQ(log.events.size(), 1U);
  EXPECT_EQ(log.events[0].step, 10);
  EXPECT_TRUE(contains(log.events[0].text, "step 13")) << log.events[0].text;

  // Killed at any time after that, it ends in the same bits; the decision lies in the checkpoint.
  for (const char* name : {"checkpoint-10", "checkpoint-15"}) {
    Trainer resumed(engine(), s.model, r, s.batches(r, Poison::nan, {12}));
    resumed.restore(folder / name);
    EXPECT_EQ(resumed.state().skipped, std::vector<int64_t>{12}) << name;
    const TestFolder other;
    (void)run_training(resumed, into(other.path()));
    EXPECT_TRUE(weights_of(resumed) == weights_of(whole)) << name;
  }
  // Before it, it meets the batch again, and decides again.
  Trainer earlier(engine(), s.model, r, s.batches(r, Poison::nan, {12}));
  earlier.restore(folder / "checkpoint-5");
  const TestFolder other;
  (void)run_training(earlier, into(other.path()));
  EXPECT_TRUE(weights_of(earlier) == weights_of(whole));
}

TEST(Rollback, SeveralBatchesAreLeftOutOneAfterTheOther) {
  const Start s;
  const TestFolder folder;
  const recipe::Recipe r = recipe(12);
  Trainer without(engine(), s.model, r, s.batches(r, Poison::none, {3, 6, 7, 8}, true));
  for (int64_t i = 0; i < 12; ++i) (void)without.step();
  Trainer whole(engine(), s.model, r, s.batches(r, Poison::nan, {3, 7, 8}));
  const LoopResult result = run_training(whole, into(folder.path()));
  // The second failure at one place leaves out the batch before, too.
  EXPECT_EQ(whole.state().rollbacks, 3);
  EXPECT_EQ(whole.state().skipped, (std::vector<int64_t>{3, 6, 7, 8}));
  EXPECT_TRUE(weights_of(whole) == weights_of(without));
  EXPECT_TRUE(std::isfinite(result.validation_loss));
  EXPECT_EQ(whole.done(), 12);
}

// Before a checkpoint is written its weights are tried on the batch that comes next: that one is left out, no other.
TEST(Rollback, TheBatchBehindACheckpointIsLeftOut) {
  const Start s;
  const TestFolder folder;
  const recipe::Recipe r = recipe(8);
  Trainer whole(engine(), s.model, r, s.batches(r, Poison::nan, {5}));
  (void)run_training(whole, into(folder.path()));
  EXPECT_EQ(whole.state().skipped, std::vector<int64_t>{5});
  EXPECT_EQ(whole.state().rollbacks, 1);
}

TEST(Rollback, EndsAfterSoManyTimes) {
  const Start s;
  const TestFolder folder;
  recipe::Recipe r = recipe(12);
  r.rollbacks = 2;
  std::vector<int64_t> all;
  for (int64_t i = 6; i < 500; ++i) all.push_back(i);
  Trainer t(engine(), s.model, r, s.batches(r, Poison::nan, all));
  try {
    (void)run_training(t, into(folder.path()));
    FAIL();
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), Exit::numeric);
    EXPECT_TRUE(contains(e.what(), "2 times")) << e.what();
    EXPECT_TRUE(contains(e.hint(), "--resume")) << e.hint();
  }
}

TEST(Rollback, StopIsTheDefaultAndNamesTheGradients) {
  const Start s;
  const TestFolder folder;
  recipe::Recipe r = recipe(20);
  r.on_nan = "stop";
  Trainer t(engine(), s.model, r, s.batches(r, Poison::nan, {12}));
  try {
    (void)run_training(t, into(folder.path()));
    FAIL();
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), Exit::numeric);
    EXPECT_TRUE(contains(e.what(), "step 13") && contains(e.what(), "gradients are not")) << e.what();
  }
}

TEST(Rollback, ASpikeIsLeftOut) {
  const Start s;
  recipe::Recipe r = recipe(40);
  r.schedule.warmup = 2;
  r.spike_factor = 2.5;
  const TestFolder with, plain;
  Trainer whole(engine(), s.model, r, s.batches(r, Poison::noise, {33}));
  (void)run_training(whole, into(with.path()));
  EXPECT_EQ(whole.state().skipped, std::vector<int64_t>{33});
  const report::RunLog log = report::read_run_log(with.path());
  ASSERT_EQ(log.events.size(), 1U);
  EXPECT_TRUE(contains(log.events[0].text, "times the median")) << log.events[0].text;
  // The same from a checkpoint before it: medians are saved with it.
  const TestFolder other;
  Trainer resumed(engine(), s.model, r, s.batches(r, Poison::noise, {33}));
  resumed.restore(with / "checkpoint-30");
  (void)run_training(resumed, into(other.path()));
  EXPECT_TRUE(weights_of(resumed) == weights_of(whole));
  // Nothing of it without the factor.
  r.spike_factor = 0;
  Trainer blind(engine(), s.model, r, s.batches(r, Poison::noise, {33}));
  (void)run_training(blind, into(plain.path()));
  EXPECT_TRUE(blind.state().skipped.empty());
}

// A rate that ruins whatever it is given: evaluations get worse from the first on.
recipe::Recipe worsening() {
  recipe::Recipe r = small_recipe();
  r.schedule = {.shape = recipe::Schedule::Shape::linear, .peak = 3e-2, .floor = 3e-2, .warmup = 0, .steps = 60};
  r.schedule.shape = recipe::Schedule::Shape::constant;
  r.evaluate_every = 4;
  r.keep = 1;
  return r;
}

TEST(EarlyStopping, EndsAndHandsOverTheBest) {
  const Start s;
  const TestFolder folder;
  recipe::Recipe r = worsening();
  r.early_stopping = 2;
  r.load_best = true;
  Trainer t(engine(), s.model, r, s.data);
  const LoopResult result = run_training(t, into(folder.path()));
  const report::RunLog log = report::read_run_log(folder.path());
  ASSERT_GE(result.best_step, 4);
  EXPECT_EQ(t.done(), result.best_step);
  double least = 1e9;
  int64_t at = 0;
  for (const report::LoggedEvaluation& e : log.evaluations) {
    if (*e.validation_loss < least) {
      least = *e.validation_loss;
      at = e.step;
    }
  }
  EXPECT_EQ(at, result.best_step);
  EXPECT_EQ(fs::read_symlink(folder / "best"), fmt::format("checkpoint-{}", result.best_step));
  EXPECT_TRUE(fs::exists(folder / "best" / "trainer_state.json")) << "kept, however few are";
  const int64_t last = log.steps.back().step;
  if (last < 60) {
    EXPECT_EQ(last, result.best_step + 8) << "two evaluations later";
  }
  // Its weights are those of its checkpoint.
  Trainer best(engine(), s.model, r, s.data);
  best.restore(folder / "best");
  EXPECT_TRUE(weights_of(best) == weights_of(t));
  // Resumed, it is over.
  Trainer again(engine(), s.model, r, s.data);
  again.restore(folder / fmt::format("checkpoint-{}", last));
  const LoopResult ended = run_training(again, into(folder.path()));
  EXPECT_EQ(ended.best_step, result.best_step);
  EXPECT_EQ(report::read_run_log(folder.path()).steps.back().step, last);
  EXPECT_TRUE(weights_of(again) == weights_of(t));
}

// Interrupted anywhere, the same evaluations decide the same.
TEST(EarlyStopping, IsExactOverInterruptions) {
  const Start s;
  const TestFolder whole, parts;
  recipe::Recipe r = worsening();
  r.early_stopping = 2;
  Trainer t(engine(), s.model, r, s.data);
  const LoopResult result = run_training(t, into(whole.path()));
  const auto state = to_json(t.state());
  // Runs of seven steps, which end between evaluations as well as at them.
  int64_t done = 0;
  for (int round = 0; round < 100; ++round) {
    const int64_t steps = std::min<int64_t>(r.schedule.steps, done + 7);
    recipe::Recipe shorter = r;
    shorter.schedule.steps = steps;
    Trainer some(engine(), s.model, shorter, s.data);
    if (done > 0) some.restore(parts / fmt::format("checkpoint-{}", done));
    (void)run_training(some, into(parts.path()));
    if (some.done() == done || some.done() == r.schedule.steps) {
      EXPECT_EQ(to_json(some.state()), state);
      EXPECT_EQ(some.done(), t.done());
      EXPECT_TRUE(weights_of(some) == weights_of(t));
      return;
    }
    done = some.done();
  }
  FAIL() << "it never ended";
}

}  // namespace
}  // namespace lumen::model::train
