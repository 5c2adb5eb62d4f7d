// Compares generated outputs with reference answers: a regular expression extracts the answer, and ignored parts are
// removed from both. The rules are those of lm-evaluation-harness. Proved by tests/model/eval/eval_task_test.cpp.
#pragma once

#include "model/eval/task.h"

namespace lumen::model::eval {

// Compiled patterns of a task. Error with the invalid pattern.
class Comparison {
 public:
  explicit Comparison(const Task& task);
  ~Comparison();
  // The answer that extraction `which` finds in a text; "[invalid]" if there is none.
  std::string extract(size_t which, const std::string& text) const;
  bool equal(const std::string& written, const std::string& right) const;

 private:
  struct Patterns;
  const Task& task_;
  std::unique_ptr<const Patterns> patterns_;
};

}  // namespace lumen::model::eval
