// Converts a large matrix panel by panel: kernels for one shape, compiled once, with separate memory for each
// concurrent converter. Same bits as Engine::encode and decode of those rows if a format has no field for the whole
// tensor, and no tile that extends beyond the panel. Proved by tests/run/engine/convert_test.cpp.
//
// May include: number/format, run/engine/compile, run/engine/verify/lone_steps.
#pragma once

#include <memory>
#include <vector>

#include "number/format/format.h"
#include "run/engine/compile/compile.h"
#include "run/engine/verify/lone_steps/lone_steps.h"

namespace lumen::run {

class Panels {
 public:
  enum class Direction : uint8_t { encode, decode };
  struct Shape {
    FormatRef format;
    int64_t rows = 0, columns = 0;
    Direction direction = Direction::encode;
    bool weighed = false;  // with an importance for each column
  };

  // The memory of one converter: numbers f32[rows, columns], the panel's blob, and the importance of each column. Bytes
  // that the kernel does not write are unchanged.
  class Place {
   public:
    float* values() { return values_; }
    uint8_t* blob() { return blob_; }
    float* importance() { return importance_; }
    void convert();  // values to blob, or blob to values

   private:
    friend class Panels;
    void launch(std::byte* base);
    const Panels* of_ = nullptr;
    std::shared_ptr<void> memory_;  // device memory
    std::vector<std::byte> host_;   // transfer buffer, if the device does not read memory of this process
    float* values_ = nullptr;
    uint8_t* blob_ = nullptr;
    float* importance_ = nullptr;
  };

  Panels(const CompileContext& context, ChosenSteps chosen, const Shape& shape, CompileReport* report);
  Panels(const Panels&) = delete;
  Panels& operator=(const Panels&) = delete;

  // Number of concurrent converters, each with its own place and thread.
  int most() const { return device_->is_asynchronous() ? 1 : threads_; }
  Place place() const;

 private:
  std::shared_ptr<Device> device_;
  int threads_ = 1;
  Direction direction_;
  std::unique_ptr<LoadedSteps> instead_;  // replaces the launches if the device's are wrong
  std::vector<Launch> launches_;
  int64_t values_bytes_ = 0, blob_bytes_ = 0, importance_bytes_ = 0;
  int64_t blob_at_ = 0, importance_at_ = 0, status_at_ = 0, bytes_ = 0;
};

}  // namespace lumen::run
