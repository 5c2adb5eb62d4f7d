// Evaluates a model on a task: every row is a question, and the answers are scored. Metrics are those of
// lm-evaluation-harness: acc (the most likely choice), acc_norm and acc_bytes (most likely normalized by length in
// characters or bytes), f1 (macro), exact_match; errors are standard errors of means. Proved by
// tests/model/eval/eval_test.cpp, and by tests/model/eval/eval_reference.py against that harness.
#pragma once

#include <functional>
#include <optional>

#include "model/eval/task.h"
#include "model/infer/session/session.h"

namespace lumen::model::eval {

struct EvalOptions {
  std::filesystem::path data;      // folder of data files; empty: the folder of the task's file
  bool outside_data = false;       // tasks may use files outside of that folder
  std::optional<int64_t> fewshot;  // few-shot examples per question; nullopt: the task's number
  int64_t limit = 0;               // most rows; 0: all
  uint32_t seed = 1234;            // for drawing examples
  infer::SessionOptions session;
  int64_t parallel = 8;  // sequences decoded at once
};

struct Figure {
  std::string name;
  double value = 0;
  std::optional<double> error;
};

struct TaskResult {
  std::string task;
  int64_t rows = 0, fewshot = 0;
  int64_t cut = 0;  // prompts truncated at their beginning because they exceeded the context
  std::vector<Figure> figures;
  std::vector<nlohmann::ordered_json> samples;  // questions and answers, one per row
  double seconds = 0;
};

struct EvalProgress {
  std::string task;
  int64_t done = 0, all = 0;
};

// The files that a task, or its members, will read. Errors as in evaluate().
std::vector<std::filesystem::path> data_files_of(const TaskLibrary& library, const std::string& task,
                                                 const EvalOptions& options);

// Returns the result of the task, or one result for each of its members and, last, their average weighted by rows.
// Error if a row or file does not match the task. `told` is called for every row; if `go_on` returns false, evaluation
// ends with Exit::interrupted.
std::vector<TaskResult> evaluate(const infer::LoadedModel& loaded, const TaskLibrary& library, const std::string& task,
                                 const EvalOptions& options, const std::function<void(const EvalProgress&)>& told,
                                 const std::function<bool()>& go_on);

}  // namespace lumen::model::eval
