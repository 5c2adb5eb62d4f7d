// needs: none. Logs of runs: what is written is read, half-broken and hostile files end in counted lines or an error.
#include <fstream>

#include "base/error.h"
#include "base/file/file.h"
#include "model/report/metrics.h"
#include "tests/model/tiny.h"

namespace lumen::model::report {
namespace {

RunLog read(const TestFolder& folder, const std::string& content) {
  std::ofstream(folder / "metrics.jsonl") << content;
  return read_run_log(folder.path());
}

TEST(Metrics, AreReadAsWritten) {
  const TestFolder folder;
  {
    MetricsFile file(folder.path(), 0);
    file.write({{"step", 0}, {"run", {{"model", "m"}, {"steps", 3}, {"recipe", "[run]\n"}}}});
    for (int step = 1; step <= 3; ++step) file.write({{"step", step}, {"loss", 4.0 / step}, {"norm", 0.5}});
    file.write({{"step", 3},
                {"validation_loss", 1.5},
                {"tasks", {{"pairs", {{"acc", 0.25}}}}},
                {"samples", {{{"prompt", "a"}, {"text", "\xff b"}}}}});
    file.write({{"step", 3}, {"event", "rollback"}, {"text", "why"}});
  }
  const RunLog log = read_run_log(folder.path());
  ASSERT_EQ(log.steps.size(), 3U);
  EXPECT_EQ(log.steps[1].loss, 2.0);
  EXPECT_EQ(log.steps[1].values.at("norm"), 0.5);
  ASSERT_EQ(log.evaluations.size(), 1U);
  EXPECT_EQ(log.evaluations[0].figures.at("pairs.acc"), 0.25);
  ASSERT_EQ(log.evaluations[0].samples.size(), 1U) << "a text that is no UTF-8 is no reason to lose it";
  EXPECT_EQ(log.events[0].kind, "rollback");
  EXPECT_EQ(log.text("model"), "m");
  EXPECT_EQ(log.number("steps"), 3.0);
  EXPECT_EQ(log.starts, 1);
  EXPECT_EQ(log.skipped, 0);
  EXPECT_NEAR(*log.train_loss(), (4.0 + 2.0 + 4.0 / 3) / 3, 1e-12);
  EXPECT_EQ(log.best_validation()->validation_loss, 1.5);
  EXPECT_FALSE(log.mean_over_time("norm")) << "no step has its seconds";
}

TEST(Metrics, AResumedRunDropsWhatItDoesAgain) {
  const TestFolder folder;
  {
    MetricsFile file(folder.path(), 0);
    for (int step = 1; step <= 6; ++step) file.write({{"step", step}, {"loss", 1.0}});
    file.go_back(4);
    file.write({{"step", 5}, {"loss", 2.0}});
  }
  RunLog log = read_run_log(folder.path());
  ASSERT_EQ(log.steps.size(), 5U);
  EXPECT_EQ(log.steps.back().loss, 2.0);
  {
    MetricsFile(folder.path(), 2).write({{"step", 3}, {"loss", 7.0}});
  }
  log = read_run_log(folder.path());
  ASSERT_EQ(log.steps.size(), 3U);
  EXPECT_EQ(log.steps.back().loss, 7.0);
  {
    MetricsFile(folder.path(), 0).write({{"step", 1}, {"loss", 9.0}});
  }
  EXPECT_EQ(read_run_log(folder.path()).steps.size(), 1U) << "a fresh run keeps nothing";
}

TEST(Metrics, LinesThatAreNoneAreCounted) {
  const TestFolder folder;
  const std::string deep(5000, '[');
  const std::vector<std::string> wrong = {
      "garbage",
      "[1, 2]",
      "{\"step\": -1, \"loss\": 1}",
      "{\"step\": 1.5, \"loss\": 1}",
      "{\"step\": \"1\", \"loss\": 1}",
      "{\"step\": 99999999999999999999, \"loss\": 1}",
      "{\"step\": 2, \"loss\": \"x\"}",
      "{\"step\": 2, \"loss\": null}",
      "{\"step\": 2, \"loss\": 1e999}",
      "{\"step\": 1, \"loss\": 1}",  // not behind the one before
      "{\"step\": 2, \"loss\": 1, \"loss\": 2}",
      "{\"step\": 3}",
      "{\"step\": 3, \"loss\": 1",  // cut off
      "{\"step\": 3, \"loss\": " + deep + "}",
      std::string("\0\xff\xfe", 3),
  };
  std::string content = "{\"step\": 1, \"loss\": 5}\n";
  for (const std::string& line : wrong) content += line + "\n";
  const RunLog log = read(folder, content + "\n\n{\"step\": 4, \"loss\": 3}");
  EXPECT_EQ(log.steps.size(), 2U);
  EXPECT_EQ(log.skipped, static_cast<int64_t>(wrong.size()));
  EXPECT_NE(log.first_skipped.find("line 2"), std::string::npos) << log.first_skipped;
  for (const std::string& line : wrong) {
    if (line != "{\"step\": 1, \"loss\": 1}") {
      EXPECT_THROW(read(folder, line), Error) << line;
    }
  }
}

TEST(Metrics, WhatIsNoRunIsAnError) {
  const TestFolder folder;
  for (const std::filesystem::path& path : {folder.path(), folder / "nowhere"}) {
    try {
      (void)read_run_log(path);
      ADD_FAILURE() << path;
    } catch (const Error& e) {
      EXPECT_EQ(e.code(), Exit::user);
      EXPECT_NE(std::string(e.what()).find("metrics.jsonl"), std::string::npos) << e.what();
    }
  }
  EXPECT_THROW(read(folder, ""), Error);
}

TEST(Metrics, EvaluationsAreByStep) {
  const TestFolder folder;
  const RunLog log = read(folder,
                          "{\"step\": 4, \"validation_loss\": 4}\n{\"step\": 8, \"validation_loss\": 5}\n"
                          "{\"step\": 4, \"validation_loss\": 3, \"tasks\": {\"a\": {\"acc\": 1}}}\n");
  ASSERT_EQ(log.evaluations.size(), 2U);
  EXPECT_EQ(log.evaluations[0].validation_loss, 3.0) << "the last one of a step counts";
  EXPECT_EQ(log.evaluations[0].figures.at("a.acc"), 1.0);
  EXPECT_EQ(log.last_validation()->validation_loss, 5.0);
}

// Losses on different rows are not comparable: neither replaces the other, and the best is one of the curve.
TEST(Metrics, EvaluationsOnOtherRowsAreOthers) {
  const TestFolder folder;
  const RunLog log = read(folder,
                          "{\"step\": 0, \"samples\": [{\"prompt\": \"a\", \"text\": \"b\"}]}\n"
                          "{\"step\": 4, \"validation_loss\": 4, \"validation_rows\": 64}\n"
                          "{\"step\": 8, \"validation_loss\": 5, \"validation_rows\": 64}\n"
                          "{\"step\": 8, \"validation_loss\": 3, \"validation_rows\": 512}\n"
                          "{\"step\": 8, \"validation_loss\": 4.5, \"validation_rows\": 64}\n");
  ASSERT_EQ(log.evaluations.size(), 4U);
  EXPECT_FALSE(log.evaluations[0].validation_loss);
  EXPECT_EQ(log.evaluations[2].validation_loss, 4.5);
  EXPECT_EQ(log.last_validation()->rows, 512.0);
  EXPECT_EQ(log.last_validation()->validation_loss, 3.0);
  EXPECT_EQ(log.best_validation()->validation_loss, 4.0);
  EXPECT_TRUE(log.evaluations[3].figures.empty()) << "the number of rows is no figure";
}

TEST(Metrics, SpeedIsTokensByTime) {
  const TestFolder folder;
  const RunLog log = read(folder,
                          "{\"step\": 1, \"loss\": 1, \"seconds\": 3, \"tokens_per_second\": 100}\n"
                          "{\"step\": 2, \"loss\": 1, \"seconds\": 1, \"tokens_per_second\": 300}\n");
  EXPECT_DOUBLE_EQ(*log.mean_over_time("tokens_per_second"), 150) << "600 tokens in 4 seconds";
}

TEST(Metrics, TheEndIsAddedToALogThatIsThere) {
  const TestFolder folder;
  MetricsFile::append(folder.path(), {{"step", 2}});
  EXPECT_FALSE(std::filesystem::exists(folder / "metrics.jsonl"));
  (void)read(folder, "{\"step\": 1, \"loss\": 1}\n");
  MetricsFile::append(folder.path(), {{"step", 1}, {"outputs", {{"command", "run it"}}}});
  const RunLog log = read_run_log(folder.path());
  EXPECT_EQ(log.steps.size(), 1U);
  EXPECT_EQ(log.outputs["command"], "run it");
  EXPECT_EQ(log.skipped, 0);
}

// Values of another kind than expected, everywhere inside lines that are read.
TEST(Metrics, WrongTypesInsideAreLeftOut) {
  const TestFolder folder;
  const RunLog log = read(folder,
                          "{\"step\": 0, \"run\": {\"model\": 7, \"steps\": \"x\", \"memory\": 3}}\n"
                          "{\"step\": 1, \"run\": []}\n"
                          "{\"step\": 1, \"loss\": 1, \"norm\": \"big\", \"lr\": {}}\n"
                          "{\"step\": 1, \"validation_loss\": [], \"tasks\": 5, \"samples\": {}}\n"
                          "{\"step\": 1, \"validation_loss\": 2, \"tasks\": {\"a\": 1, \"b\": {\"c\": \"d\"}}, "
                          "\"samples\": [1, {}, {\"prompt\": 1}]}\n"
                          "{\"step\": 1, \"event\": 1, \"text\": 2}\n");
  EXPECT_EQ(log.text("model"), "");
  EXPECT_FALSE(log.number("steps"));
  EXPECT_TRUE(log.steps.at(0).values.empty());
  ASSERT_EQ(log.evaluations.size(), 1U) << "those of one step are one";
  EXPECT_EQ(log.evaluations[0].validation_loss, 2.0);
  EXPECT_TRUE(log.evaluations[0].figures.empty());
  EXPECT_EQ(log.skipped, 1);
}

}  // namespace
}  // namespace lumen::model::report
