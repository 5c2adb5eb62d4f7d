// needs: none. Evaluations while a model is trained: tasks and samples with the weights as they are.
#include "model/train/loop/evaluation.h"

#include <fstream>
#include <span>

#include "base/error.h"
#include "model/report/metrics.h"
#include "model/train/loop/loop.h"
#include "tests/model/tiny.h"
#include "tests/model/train/training_case.h"

namespace lumen::model::train {
namespace {

struct Start {
  arch::Model model;
  std::shared_ptr<data::Dataset> data;
  TestFolder folder;
  recipe::Recipe recipe = small_recipe();
  Start() {
    const text::Tokenizer tokenizer = text::Tokenizer::characters(training_text());
    data = std::make_shared<data::Dataset>(data::Dataset::from_text(training_text(), tokenizer));
    const arch::FamilyRef family = test_library()->family("llama");
    model = initialise(family, family->config("tiny", {{"vocab", static_cast<double>(tokenizer.size())}}), 3);
    model.tokenizer = tokenizer;
    // Which letter follows: what the text teaches.
    std::ofstream(folder / "letters.toml") << "name = \"letters\"\nkind = \"choice\"\ndata = \"letters.jsonl\"\n"
                                              "prompt = \"{{text}}\"\nchoices = \"choices\"\nanswer = \"{{answer}}\"\n"
                                              "separator = \"\"\nmetrics = [\"acc\"]\n";
    std::ofstream rows(folder / "letters.jsonl");
    for (const char* row : {R"({"text": "the cat sat on the m", "choices": ["at", "og"], "answer": 0})",
                            R"({"text": "a dog ran to the c", "choices": ["og", "at"], "answer": 1})",
                            R"({"text": "the cat s", "choices": ["at", "og"], "answer": 0})"})
      rows << row << "\n";
    recipe.eval_tasks = {(folder / "letters.toml").string()};
    recipe.samples = "the cat\na dog";
    recipe.sample_tokens = 5;
    recipe.evaluate_every = 20;
  }
};

TEST(TrainingEvaluation, AsksTasksAndWritesSamples) {
  Start s;
  s.recipe.metric = "letters.acc";
  s.recipe.load_best = true;
  LoopOptions options;
  options.out = s.folder / "run";
  Trainer t(engine(), s.model, s.recipe, s.data);
  const LoopResult result = run_training(t, options);
  const report::RunLog log = report::read_run_log(options.out);
  // Before the first step, after 20 and after 40; that of the end is of one of them.
  ASSERT_EQ(log.evaluations.size(), 3U);
  EXPECT_EQ(log.evaluations[0].step, 0);
  EXPECT_EQ(log.evaluations[0].samples.size(), 2U) << "what was answered before";
  EXPECT_FALSE(log.evaluations[0].validation_loss);
  double most = -1;
  int64_t at = 0;
  for (const report::LoggedEvaluation& e : std::span(log.evaluations).subspan(1)) {
    ASSERT_TRUE(e.figures.contains("letters.acc"));
    if (e.figures.at("letters.acc") > most) {
      most = e.figures.at("letters.acc");
      at = e.step;
    }
    ASSERT_EQ(e.samples.size(), 2U);
    EXPECT_EQ(e.samples[1].prompt, "a dog");
    EXPECT_EQ(e.samples[1].text.size(), 5U);
  }
  EXPECT_EQ(result.best_step, at) << "the most, and the first of equals";
  // Evaluating changes nothing of the training.
  recipe::Recipe plain = s.recipe;
  plain.eval_tasks = {};
  plain.samples = "";
  plain.metric = "validation_loss";
  plain.evaluate_every = 0;
  plain.load_best = false;
  Trainer alone(engine(), s.model, plain, s.data);
  (void)run_training(alone, {});
  Trainer last(engine(), s.model, s.recipe, s.data);
  last.restore(options.out / "checkpoint-40");
  EXPECT_TRUE(weights_of(last) == weights_of(alone));
}

// The curve of the intermediate evaluations ends in a point of as many rows; that of all rows stands next to it.
TEST(TrainingEvaluation, TheCurveHasOneNumberOfRows) {
  Start s;
  s.recipe.eval_tasks = {};
  s.recipe.samples = "";
  s.recipe.length = 8;
  s.recipe.validation = 0.5;
  s.recipe.evaluate_every = 15;
  LoopOptions options;
  options.out = s.folder / "run";
  Trainer t(engine(), s.model, s.recipe, s.data);
  ASSERT_GT(t.evaluated_rows(0), 64);
  const LoopResult result = run_training(t, options);
  const report::RunLog log = report::read_run_log(options.out);
  std::vector<std::pair<int64_t, double>> seen;
  for (const report::LoggedEvaluation& e : log.evaluations) seen.emplace_back(e.step, e.rows.value_or(0));
  const auto all = static_cast<double>(t.evaluated_rows(0));
  EXPECT_EQ(seen, (std::vector<std::pair<int64_t, double>>{{15, 64}, {30, 64}, {40, 64}, {40, all}}));
  EXPECT_EQ(log.evaluations[2].validation_loss, t.evaluate(64));
  EXPECT_EQ(log.last_validation()->validation_loss, result.validation_loss);
}

TEST(TrainingEvaluation, LimitsRows) {
  Start s;
  s.recipe.eval_limit = 1;
  s.recipe.samples = "";
  Trainer t(engine(), s.model, s.recipe, s.data);
  const auto e = TrainingEvaluator(s.recipe).run(t, 2, nullptr, [](const std::string&) {});
  const double acc = e->figures.at("letters.acc");
  EXPECT_TRUE(acc == 0 || acc == 1);
  EXPECT_EQ(e->figure("validation_loss"), e->validation_loss);
  EXPECT_THROW((void)e->figure("letters.f1"), Error);
  const std::atomic<bool> stop = true;
  EXPECT_FALSE(TrainingEvaluator(s.recipe).run(t, 2, &stop, [](const std::string&) {}));
}

TEST(TrainingEvaluation, MistakesAreFoundBeforeTheFirstStep) {
  Start s;
  const auto refused = [&](const std::function<void(recipe::Recipe&)>& change, const std::string& part) {
    recipe::Recipe r = s.recipe;
    change(r);
    try {
      const TrainingEvaluator evaluator(r);
      ADD_FAILURE() << part;
    } catch (const Error& e) {
      EXPECT_NE((std::string(e.what()) + e.hint()).find(part), std::string::npos) << e.what();
    }
  };
  refused([](recipe::Recipe& r) { r.eval_tasks = {"no_such_task"}; }, "no_such_task");
  refused([](recipe::Recipe& r) { r.eval_tasks = {"arc_easy"}; }, "--eval-data");
  refused([](recipe::Recipe& r) { r.eval_tasks = {"/nowhere/task.toml"}; }, "/nowhere/task.toml");
  refused([](recipe::Recipe& r) { r.metric = "arc_easy.acc"; }, "arc_easy.acc");
  refused([](recipe::Recipe& r) { r.metric = "loss"; }, "validation_loss");
}

TEST(TrainingEvaluation, LossesAreBetterWhenTheyAreLess) {
  EXPECT_TRUE(is_better("validation_loss", 1, 2));
  EXPECT_FALSE(is_better("validation_loss", 2, 2));
  EXPECT_TRUE(is_better("arc_easy.acc", 2, 1));
  EXPECT_FALSE(is_better("arc_easy.acc", 1, 1));
}

}  // namespace
}  // namespace lumen::model::train
