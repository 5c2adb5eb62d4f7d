// A task put to a model: every row asked, answers counted. The figures are those of lm-evaluation-harness: acc (the
// likeliest choice), acc_norm and acc_bytes (likeliest for its length in characters or bytes), f1 (macro), exact_match;
// errors are standard errors of means. Proved by tests/model/eval/eval_test.cpp, and by
// tests/model/eval/eval_reference.py against that harness.
#pragma once

#include <functional>
#include <optional>

#include "model/eval/task.h"
#include "model/infer/session/session.h"

namespace lumen::model {

struct EvalOptions {
  std::filesystem::path data;      // where data files lie; empty: beside the task's own file
  bool outside_data = false;       // tasks may name files outside of that folder
  std::optional<int64_t> fewshot;  // examples in front of each question; without it the task's number
  int64_t limit = 0;               // rows at most; 0: all
  uint32_t seed = 1234;            // of the examples that are drawn
  SessionOptions session;
  int64_t parallel = 8;  // sequences generated at once
};

struct Figure {
  std::string name;
  double value = 0;
  std::optional<double> error;
};

struct TaskResult {
  std::string task;
  int64_t rows = 0, fewshot = 0;
  int64_t cut = 0;  // prompts that lost their beginning, for they were longer than the context
  std::vector<Figure> figures;
  std::vector<nlohmann::ordered_json> samples;  // what was asked and answered, a row each
  double seconds = 0;
};

struct EvalProgress {
  std::string task;
  int64_t done = 0, all = 0;
};

// The files that a task, or its members, will read. Error as evaluate().
std::vector<std::filesystem::path> data_files_of(const TaskLibrary& library, const std::string& task,
                                                 const EvalOptions& options);

// The task itself, or one result for each of its members and, last, their average weighted by rows. Error where a row
// or file is not as the task says. `told` hears of every row; `go_on` false ends with Exit::interrupted.
std::vector<TaskResult> evaluate(const LoadedModel& loaded, const TaskLibrary& library, const std::string& task,
                                 const EvalOptions& options, const std::function<void(const EvalProgress&)>& told,
                                 const std::function<bool()>& go_on);

}  // namespace lumen::model
