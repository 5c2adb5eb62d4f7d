// metrics.jsonl, the log of a training run: one JSON object per line, each with its step. Lines of steps hold numbers,
// lines of evaluations a validation loss, figures of tasks and samples, lines of a start ("run") what is trained by
// which recipe on which files, and lines of events a text. Written while a run goes on, read by reports. Proved by
// tests/model/report/report_metrics_test.cpp.
#pragma once

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

namespace lumen::model {

inline constexpr const char* kMetricsName = "metrics.jsonl";

// Appends lines; one that cannot be written (a full disk) ends the run with an error.
class MetricsFile {
 public:
  MetricsFile() = default;
  // Lines of steps behind `done` are dropped, by replacing the file as a whole: a resumed run does them again.
  MetricsFile(const std::filesystem::path& out, int64_t done);
  void write(const nlohmann::json& line);  // without a folder nothing happens
  void go_back(int64_t done);              // a run that has gone back to an earlier step

 private:
  void open(int64_t done, bool fresh);

  std::filesystem::path path_;
  std::ofstream file_;
};

struct LoggedStep {
  int64_t step = 0;
  double loss = 0;
  std::map<std::string, double> values;  // everything else that is a number, by its key
};

struct LoggedSample {
  std::string prompt, text;
};

struct LoggedEvaluation {
  int64_t step = 0;
  std::optional<double> validation_loss;
  std::map<std::string, double> figures;  // "TASK.FIGURE", and what else is a number
  std::vector<LoggedSample> samples;
};

struct LoggedEvent {
  int64_t step = 0;
  std::string kind, text;
};

// A line as the file has it that is none of a log, so that it was left out.
struct RunLog {
  std::string name;            // the folder's
  std::filesystem::path path;  // of the file
  std::vector<LoggedStep> steps;
  std::vector<LoggedEvaluation> evaluations;
  std::vector<LoggedEvent> events;
  nlohmann::json run = nlohmann::json::object();  // of the latest start
  int64_t starts = 0;                             // lines "run": more than one when it was resumed
  int64_t skipped = 0;                            // lines that are no line of a log
  std::string first_skipped;                      // where, and why

  // The loss of the last steps together, and the validation losses; nothing where there are none.
  std::optional<double> train_loss() const;
  std::optional<double> last_validation() const, best_validation() const;
  std::string text(const char* key) const;  // of `run`; empty where it has none
  std::optional<double> number(const char* key) const;
};

// RUN is the folder of a run, or its metrics file. Lines that are not of this format are counted; Error when the file
// cannot be read, or has no line of a log.
RunLog read_run_log(const std::filesystem::path& run);

}  // namespace lumen::model
