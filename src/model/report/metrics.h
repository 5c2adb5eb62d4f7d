// metrics.jsonl, the log of a training run: one JSON object per line, each with its step. Lines of steps hold numbers;
// lines of evaluations a validation loss with its number of rows, task figures and samples; lines of a start ("run")
// the model, recipe and files; lines of events a text; the line of the end ("outputs") what the run left. Written
// during a run, read by reports. Proved by tests/model/report/report_metrics_test.cpp.
#pragma once

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

namespace lumen::model::report {

inline constexpr const char* kMetricsName = "metrics.jsonl";

// Appends lines; a failed write (a full disk) ends the run with an error.
class MetricsFile {
 public:
  MetricsFile() = default;
  // Drops lines of steps after `done`, by replacing the whole file: a resumed run repeats them.
  MetricsFile(const std::filesystem::path& out, int64_t done);
  void write(const nlohmann::json& line);  // no effect without a folder
  void go_back(int64_t done);              // after a rollback to an earlier step
  // Adds a line to the log in `out`; no effect where there is none.
  static void append(const std::filesystem::path& out, const nlohmann::json& line);

 private:
  void open(int64_t done, bool fresh);

  std::filesystem::path path_;
  std::ofstream file_;
};

struct LoggedStep {
  int64_t step = 0;
  double loss = 0;
  std::map<std::string, double> values;  // all other numbers, by key
};

struct LoggedSample {
  std::string prompt, text;
};

struct LoggedEvaluation {
  int64_t step = 0;
  std::optional<double> validation_loss;
  std::optional<double> rows;             // of validation data that it was computed on; older logs do not have it
  std::map<std::string, double> figures;  // "TASK.FIGURE", and all other numbers
  std::vector<LoggedSample> samples;
};

struct LoggedEvent {
  int64_t step = 0;
  std::string kind, text;
};

// The parsed log. Lines that do not belong to a log are counted and left out.
struct RunLog {
  std::string name;            // the folder's
  std::filesystem::path path;  // of the file
  std::vector<LoggedStep> steps;
  std::vector<LoggedEvaluation> evaluations;
  std::vector<LoggedEvent> events;
  nlohmann::json run = nlohmann::json::object();      // of the latest start
  nlohmann::json outputs = nlohmann::json::object();  // "files" and the "command" that runs one; empty before the end
  int64_t starts = 0;                                 // lines "run": more than one for a resumed run
  int64_t skipped = 0;                                // lines that do not belong to a log
  std::string first_skipped;                          // its position, and the reason

  // The mean loss of the last 50 steps; nullopt without any.
  std::optional<double> train_loss() const;
  // Evaluations with a validation loss: the last one, and the best of those on as many rows as the first, because
  // losses on other rows are not comparable. Null without any.
  const LoggedEvaluation *last_validation() const, *best_validation() const;
  // The mean of a value of steps, weighted by their seconds; nullopt without any. Of "tokens_per_second" it is the
  // speed of the run: the tokens of all steps by the time of these steps.
  std::optional<double> mean_over_time(const std::string& key) const;
  std::string text(const char* key) const;  // of `run`; empty if missing
  std::optional<double> number(const char* key) const;
};

// RUN is the folder of a run, or its metrics file. Lines of another form are counted; Error when the file cannot be
// read, or has no line of a log.
RunLog read_run_log(const std::filesystem::path& run);

}  // namespace lumen::model::report
