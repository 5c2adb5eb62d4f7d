// needs: none. Reports of runs: the document has what a log holds; runs are compared by values and recipes.
#include "model/report/report.h"

#include <gmock/gmock.h>

#include <cmath>

#include "model/recipe/recipe.h"
#include "tests/model/report/page_document.h"
#include "tests/model/tiny.h"

namespace lumen::model::report {
namespace {

using nlohmann::ordered_json;
using testing::HasSubstr;

RunLog run(const std::string& name, const recipe::Recipe& recipe, double loss) {
  RunLog log;
  log.name = name;
  log.path = "/runs/" + name + "/metrics.jsonl";
  for (int i = 1; i <= 120; ++i)
    log.steps.push_back(
        {i, loss + 2.0 / i, {{"norm", 1.0 / i}, {"lr", 1e-3}, {"tokens", 64.0 * i}, {"memory", 3e6}, {"mfu", 0.25}}});
  LoggedEvaluation e;
  e.step = 60;
  e.validation_loss = loss + 0.5;
  e.rows = 64;
  e.figures["arc.acc"] = 0.625;
  e.samples.push_back({"Once", " upon a <time>"});
  log.evaluations.push_back(e);
  log.events.push_back({80, "rollback", "back to step 70"});
  log.run = {{"model", "tiny"},
             {"parameters", 1000},
             {"trained", 10},
             {"steps", 120},
             {"recipe", describe(recipe)},
             {"memory", {{{"kind", "weights"}, {"bytes", 4096}}, {{"kind", "optimizer"}, {"bytes", 8192}}}},
             {"base", "/models/base.gguf"},
             {"base_hash", "0a1b"},
             {"optimizer", "lion"},
             {"moments", "q8_0"},
             {"what", {{{"what", "layers.*.wq"}, {"format", "bf16"}, {"tensors", 2}, {"numbers", 77}}}},
             {"formats", {{{"format", "q4_0"}, {"tensors", 3}, {"numbers", 900}, {"bytes", 500}}}},
             {"files", {{{"path", "/data/a.txt"}, {"bytes", 12}, {"xxh3_128", "00ff"}}}}};
  log.outputs = {{"command", "lumen chat -m " + name + "/model.gguf"}};
  log.starts = 1;
  return log;
}

ordered_json document(const RunLog& log) {
  return report_json({&log, 1});
}

TEST(Report, HoldsWhatTheLogHolds) {
  recipe::Recipe recipe;
  recipe.batch = 3;
  recipe.keep = 9;  // changes nothing of what is trained
  const ordered_json out = document(run("one", recipe, 1));
  EXPECT_EQ(out["title"], "one");
  EXPECT_EQ(out["subtitle"], "tiny");
  ASSERT_EQ(out["runs"].size(), 1U);
  const ordered_json& one = out["runs"][0];
  EXPECT_EQ(one["about"], ordered_json(run("one", recipe, 1).run));
  EXPECT_EQ(one["events"], ordered_json::parse(R"([{"step": 80, "kind": "rollback", "text": "back to step 70"}])"));
  const ordered_json& e = one["evaluations"][0];
  EXPECT_EQ(e["step"], 60);
  EXPECT_EQ(e["validation_loss"], 1.5);
  EXPECT_EQ(e["rows"], 64.0);
  EXPECT_EQ(e["figures"]["arc.acc"], 0.625);
  EXPECT_EQ(e["samples"][0]["text"], " upon a <time>");
  for (const char* key : {"loss", "norm", "lr", "memory", "mfu"}) {
    EXPECT_EQ(one["curves"][key]["x"].size(), 120U) << key;
    EXPECT_EQ(one["curves"][key]["y"].size(), 120U) << key;
    EXPECT_FALSE(one["curves"][key].contains("low")) << key;
  }
  EXPECT_EQ(one["curves"]["loss"]["y"][1], 2.0);
  EXPECT_EQ(one["outputs"]["command"], "lumen chat -m one/model.gguf");
  ASSERT_EQ(one["recipe_changes"].size(), 1U) << one["recipe_changes"];
  EXPECT_EQ(one["recipe_changes"][0]["key"], "run.batch");
  EXPECT_EQ(one["recipe_changes"][0]["default"], "12");
  EXPECT_EQ(one["recipe_changes"][0]["value"], "3");
}

TEST(Report, ARecipeIsComparedWithTheDefaultsOfItsProgram) {
  recipe::Recipe recipe;
  recipe.batch = 3;
  RunLog log = run("one", recipe, 1);
  log.run["defaults"] = describe(recipe);
  EXPECT_TRUE(document(log)["runs"][0]["recipe_changes"].empty());
}

TEST(Report, SummarizesEachRunOnce) {
  RunLog log = run("one", {}, 1);
  LoggedEvaluation all;
  all.step = 120;
  all.validation_loss = 1.25;
  all.rows = 512;
  log.evaluations.push_back(all);
  log.steps[0].values["tokens_per_second"] = 100;
  log.steps[0].values["seconds"] = 3;
  log.steps[1].values["tokens_per_second"] = 300;
  log.steps[1].values["seconds"] = 1;
  const ordered_json summary = document(log)["runs"][0]["summary"];
  EXPECT_EQ(summary["step"], 120);
  EXPECT_EQ(summary["validation_loss"], 1.25);
  EXPECT_EQ(summary["validation_rows"], 512.0);
  EXPECT_EQ(summary["best_loss"], 1.5) << "of the curve: 64 rows";
  EXPECT_EQ(summary["best_step"], 60);
  EXPECT_EQ(summary["best_rows"], 64.0);
  EXPECT_EQ(summary["speed"], 150.0) << "tokens by time, as the last line of `lumen train` has it";
  EXPECT_EQ(summary["seconds"], 4.0);
  EXPECT_EQ(summary["memory"], 3e6);
  EXPECT_EQ(summary["tokens"], 7680.0);
  EXPECT_NEAR(summary["train_loss"].get<double>(), *log.train_loss(), 1e-12);
  EXPECT_THAT(text_report({&log, 1}), HasSubstr(" 150  "));
}

TEST(Report, LongRunsAreCondensed) {
  RunLog log;
  for (int i = 1; i <= 50000; ++i) log.steps.push_back({i, i == 30000 ? 90.0 : 1.0, {}});
  const ordered_json loss = document(log)["runs"][0]["curves"]["loss"];
  EXPECT_EQ(loss["x"].size(), 600U);
  double most = 0;
  for (const double y : loss["high"]) most = std::max(most, y);
  EXPECT_EQ(most, 90) << "spikes stay";
}

TEST(Report, ThePageHoldsTheDocument) {
  const std::vector<RunLog> runs = {run("one", {}, 1), run("two", {}, 2)};
  EXPECT_EQ(document_of(html_report(runs)), report_json(runs));
  EXPECT_EQ(document_of(html_report({&runs[0], 1})), report_json({&runs[0], 1}));
}

TEST(Report, LogsWithHardlyAnything) {
  RunLog log;
  log.name = "none";
  EXPECT_EQ(document(log)["runs"][0]["summary"], ordered_json::object());
  EXPECT_TRUE(document(log)["runs"][0]["curves"]["loss"]["x"].empty());
  log.run = {{"memory", {1, "x", {{"kind", 1}}, {{"kind", "a"}, {"bytes", -1}}}}, {"files", {1, 2}}, {"formats", {3}}};
  EXPECT_EQ(document(log)["runs"][0]["about"]["files"], ordered_json({1, 2}));
  EXPECT_EQ(report_json(std::vector<RunLog>{log, run("one", {}, 1)})["title"], "2 runs");
  EXPECT_THAT(text_report({&log, 1}), HasSubstr("none"));
}

TEST(Report, ComparesRecipes) {
  recipe::Recipe a, b;
  b.schedule.peak = 5e-4;
  b.batch = 3;
  b.keep = 9;  // changes nothing of what is trained
  const std::vector<RunLog> runs = {run("one", a, 1), run("two", b, 2), run("three", a, 3)};
  const std::vector<RecipeDifference> d = recipe_differences(runs);
  ASSERT_EQ(d.size(), 2U);
  EXPECT_EQ(d[0].key, "run.batch");
  EXPECT_EQ(d[0].values, (std::vector<std::string>{"12", "3", "12"}));
  EXPECT_EQ(d[1].key, "schedule.learning_rate");
  const ordered_json differences = report_json(runs)["differences"];
  ASSERT_EQ(differences.size(), 2U);
  EXPECT_EQ(differences[0], ordered_json::parse(R"({"key": "run.batch", "values": ["12", "3", "12"]})"));
  const std::string text = text_report(runs);
  for (const char* part : {"one", "two", "three", "run.batch", "schedule.learning_rate", "arc.acc"})
    EXPECT_THAT(text, HasSubstr(part));
  EXPECT_THAT(text, HasSubstr("█"));
  EXPECT_THAT(text, HasSubstr("one: step 80: rollback: back to step 70"));
  // One run whose recipe is no recipe.
  std::vector<RunLog> broken = runs;
  broken[1].run["recipe"] = "][";
  EXPECT_TRUE(recipe_differences(broken).empty());
  EXPECT_TRUE(report_json(broken)["runs"][1]["recipe_changes"].empty());
  EXPECT_FALSE(report_json(std::vector<RunLog>{runs[0], runs[2]}).contains("differences"));
}

}  // namespace
}  // namespace lumen::model::report
