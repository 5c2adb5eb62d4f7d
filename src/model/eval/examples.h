// Draws few-shot examples: the same rows as lm-evaluation-harness, so that few-shot metrics are comparable. It uses
// Python's generator (MT19937, seeded with a number) and random.sample. Proved by tests/model/eval/eval_task_test.cpp
// with numbers from Python.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace lumen::model::eval {

class ExampleDraws {
 public:
  explicit ExampleDraws(uint32_t seed);
  // Draws `count` different indices below `size`; count <= size.
  std::vector<size_t> sample(size_t size, size_t count);

 private:
  uint32_t next();
  size_t below(size_t n);  // uniform below n; n >= 1

  std::array<uint32_t, 624> state_;
  size_t at_ = 624;
};

}  // namespace lumen::model::eval
