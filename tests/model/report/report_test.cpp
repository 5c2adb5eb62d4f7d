// needs: none. Reports of runs: what a log holds stands there, escaped; runs are compared by values and recipes.
#include "model/report/report.h"

#include <gmock/gmock.h>

#include <cmath>

#include "model/recipe/recipe.h"
#include "tests/model/tiny.h"

namespace lumen::model {
namespace {

using testing::HasSubstr;
using testing::Not;

RunLog run(const std::string& name, const Recipe& recipe, double loss) {
  RunLog log;
  log.name = name;
  log.path = "/runs/" + name + "/metrics.jsonl";
  for (int i = 1; i <= 120; ++i)
    log.steps.push_back(
        {i, loss + 2.0 / i, {{"norm", 1.0 / i}, {"lr", 1e-3}, {"tokens", 64.0 * i}, {"memory", 3e6}, {"mfu", 0.25}}});
  LoggedEvaluation e;
  e.step = 60;
  e.validation_loss = loss + 0.5;
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
  log.starts = 1;
  return log;
}

TEST(Report, ShowsWhatTheLogHolds) {
  const std::string html = html_report(run("one", {}, 1));
  for (const char* part : {"<!DOCTYPE html>",
                           "<h1>one</h1>",
                           "Gradient norm",
                           "Learning rate",
                           "MFU",
                           "Memory",
                           "0.6250",
                           "arc.acc",
                           "upon a &lt;time&gt;",
                           "back to step 70",
                           "/data/a.txt",
                           "00ff",
                           "q4_0",
                           "1 %",
                           "/models/base.gguf",
                           "0a1b",
                           "lion, moments in q8_0",
                           "layers.*.wq",
                           "bf16",
                           "77",
                           "max_grad_norm = 1",
                           "8.00 KiB",
                           "66.7 %"})
    EXPECT_THAT(html, HasSubstr(part)) << part;
}

// A page is read without a network, and runs nothing.
TEST(Report, NeedsNothingBesideItself) {
  for (const std::string& html :
       {html_report(run("one", {}, 1)), html_comparison(std::vector<RunLog>{run("one", {}, 1), run("two", {}, 2)})}) {
    for (const char* part : {"<script", "http:", "https:", "src=", "@import", "url(", "<link", "onload"})
      EXPECT_THAT(html, Not(HasSubstr(part))) << part;
    EXPECT_THAT(html, HasSubstr("Content-Security-Policy"));
    EXPECT_THAT(html, HasSubstr("prefers-color-scheme:dark"));
  }
}

TEST(Report, EverythingIsEscaped) {
  const std::string evil = "<img src=x onerror=alert(1)>\"'&";
  RunLog log = run("one", {}, 1);
  log.name = log.first_skipped = evil;
  log.skipped = 2;
  log.path = evil;
  log.evaluations[0].figures = {{evil, 1.0}};
  log.evaluations[0].samples = {{evil, evil}};
  log.events = {{1, evil, evil}};
  for (const char* key : {"model", "family", "device", "recipe", "base"}) log.run[key] = evil;
  log.run["memory"] = {{{"kind", evil}, {"bytes", 5}}};
  log.run["files"] = {{{"path", evil}, {"xxh3_128", evil}, {"bytes", evil}}};
  log.run["formats"] = {{{"format", evil}, {"tensors", evil}}};
  log.run["what"] = {{{"what", evil}, {"format", evil}}};
  for (const std::string& html : {html_report(log), html_comparison(std::vector<RunLog>{log, log})}) {
    EXPECT_THAT(html, Not(HasSubstr("<img")));
    EXPECT_THAT(html, Not(HasSubstr("x onerror=alert(1)>")));
    EXPECT_THAT(html, HasSubstr("&lt;img"));
  }
}

TEST(Report, LogsWithHardlyAnything) {
  RunLog log;
  log.name = "none";
  EXPECT_THAT(html_report(log), HasSubstr("</html>"));
  log.run = {{"memory", {1, "x", {{"kind", 1}}, {{"kind", "a"}, {"bytes", -1}}}}, {"files", {1, 2}}, {"formats", {3}}};
  EXPECT_THAT(html_report(log), HasSubstr("</html>"));
  EXPECT_THAT(html_comparison(std::vector<RunLog>{log, run("one", {}, 1)}), HasSubstr("</html>"));
  EXPECT_THAT(text_report(std::vector<RunLog>{log}), HasSubstr("none"));
}

TEST(Report, ComparesRecipes) {
  Recipe a, b;
  b.schedule.peak = 5e-4;
  b.batch = 3;
  b.keep = 9;  // changes nothing of what is trained
  const std::vector<RunLog> runs = {run("one", a, 1), run("two", b, 2), run("three", a, 3)};
  const std::vector<RecipeDifference> d = recipe_differences(runs);
  ASSERT_EQ(d.size(), 2U);
  EXPECT_EQ(d[0].key, "run.batch");
  EXPECT_EQ(d[0].values, (std::vector<std::string>{"12", "3", "12"}));
  EXPECT_EQ(d[1].key, "schedule.learning_rate");
  const std::string html = html_comparison(runs), text = text_report(runs);
  for (const char* part : {"one", "two", "three", "run.batch", "schedule.learning_rate", "arc.acc"}) {
    EXPECT_THAT(html, HasSubstr(part));
    EXPECT_THAT(text, HasSubstr(part));
  }
  EXPECT_THAT(text, HasSubstr("█"));
  EXPECT_THAT(text, HasSubstr("one: step 80: rollback: back to step 70"));
  // One run whose recipe is no recipe.
  std::vector<RunLog> broken = runs;
  broken[1].run["recipe"] = "][";
  EXPECT_TRUE(recipe_differences(broken).empty());
  EXPECT_THAT(html_comparison(std::vector<RunLog>{runs[0], runs[2]}), HasSubstr("the recipes are alike"));
}

}  // namespace
}  // namespace lumen::model
