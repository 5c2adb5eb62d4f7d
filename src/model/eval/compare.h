// Outputs that a model generated, compared with the right answers: an answer is taken out by a regular expression, and
// what does not count is left out of both. The rules are those of lm-evaluation-harness. Proved by
// tests/model/eval/eval_task_test.cpp.
#pragma once

#include "model/eval/task.h"

namespace lumen::model {

// Patterns of a task, compiled once. Error with the pattern that is none.
class Comparison {
 public:
  explicit Comparison(const Task& task);
  ~Comparison();
  // The answer that extraction `which` finds in a text; "[invalid]" when it finds none.
  std::string extract(size_t which, const std::string& text) const;
  bool equal(const std::string& written, const std::string& right) const;

 private:
  struct Patterns;
  const Task& task_;
  std::unique_ptr<const Patterns> patterns_;
};

}  // namespace lumen::model
