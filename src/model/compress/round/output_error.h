// Output errors of products due to weight errors: e G e^T by rows, where G is the gram of the weights' inputs. On the
// engine's device. Proved by tests/model/compress/round/gptq_test.cpp.
#pragma once

#include <map>
#include <memory>
#include <span>
#include <string>
#include <tuple>
#include <vector>

#include "run/engine/engine.h"

namespace lumen::model::compress {

class OutputErrors {
 public:
  explicit OutputErrors(run::Engine& engine) : engine_(engine) {}
  // Uploads a gram [columns, columns], to use for any number of matrices.
  run::DeviceTensorRef keep(std::span<const float> gram, int64_t columns);
  // e [rows, columns]; f32 sums in a fixed order. Same bits at any thread count.
  std::vector<double> of(std::span<const float> e, int64_t rows, int64_t columns, const run::DeviceTensorRef& gram);
  // The same for e = w - decoded blob, with w [rows, columns] on the device.
  std::vector<double> of_rounded(const run::DeviceTensorRef& w, const FormatRef& format, std::span<const uint8_t> blob,
                                 const run::DeviceTensorRef& gram);
  // e G.
  std::vector<float> product(std::span<const float> e, int64_t rows, int64_t columns, const run::DeviceTensorRef& gram);

 private:
  enum class Kind : uint8_t { product, sums, sums_of_rounded };
  run::Program& program(int64_t rows, int64_t columns, Kind kind, const FormatRef& format = nullptr);
  std::vector<float> run(run::Program& program, std::span<const float> e, int64_t rows, int64_t columns,
                         const run::DeviceTensorRef& gram);

  run::Engine& engine_;
  std::map<std::tuple<int64_t, int64_t, Kind, std::string>, std::shared_ptr<run::Program>> programs_;
};

}  // namespace lumen::model::compress
