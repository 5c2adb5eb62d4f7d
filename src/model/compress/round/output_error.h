// What products lose by errors of weights: e G e^T by rows, where G is the gram of what the weights read. On the
// engine's device. Proved by tests/model/compress/round/gptq_test.cpp.
#pragma once

#include <map>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "run/engine/engine.h"

namespace lumen::model {

class OutputErrors {
 public:
  explicit OutputErrors(run::Engine& engine) : engine_(engine) {}
  // A gram [columns, columns] on the device, for any number of matrices.
  run::DeviceTensorRef keep(std::span<const float> gram, int64_t columns);
  // e [rows, columns]; f32 sums in a fixed order. Same bits at any thread count.
  std::vector<double> of(std::span<const float> e, int64_t rows, int64_t columns, const run::DeviceTensorRef& gram);
  // e G.
  std::vector<float> product(std::span<const float> e, int64_t rows, int64_t columns, const run::DeviceTensorRef& gram);

 private:
  run::Program& program(int64_t rows, int64_t columns, bool sums);
  std::vector<float> run(run::Program& program, std::span<const float> e, int64_t rows, int64_t columns,
                         const run::DeviceTensorRef& gram);

  run::Engine& engine_;
  std::map<std::tuple<int64_t, int64_t, bool>, std::shared_ptr<run::Program>> programs_;
};

}  // namespace lumen::model
