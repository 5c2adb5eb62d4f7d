// Which rows stand as examples in front of a question: the same that lm-evaluation-harness draws, so that figures with
// examples compare. It draws with Python's generator (MT19937, seeded with a number) and random.sample. Proved by
// tests/model/eval/eval_task_test.cpp with numbers that Python gave.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace lumen::model {

class ExampleDraws {
 public:
  explicit ExampleDraws(uint32_t seed);
  // `count` different places below `size`, in the order drawn; count <= size.
  std::vector<size_t> sample(size_t size, size_t count);

 private:
  uint32_t next();
  size_t below(size_t n);  // n >= 1

  std::array<uint32_t, 624> state_;
  size_t at_ = 624;
};

}  // namespace lumen::model
