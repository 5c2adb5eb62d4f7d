// Conversions of a large matrix a panel of rows at a time: kernels for one shape, compiled once, with memory of its own
// for everyone who converts at the same time. Same bits as Engine::encode and decode of those rows where a format has
// no field for the whole tensor, and none for a tile that reaches beyond the panel. Proved by
// tests/run/engine/convert_test.cpp.
//
// May include: number/format, run/engine/compile, run/engine/lone_steps.
#pragma once

#include <memory>
#include <vector>

#include "number/format/format.h"
#include "run/engine/compile/compile.h"
#include "run/engine/lone_steps/lone_steps.h"

namespace lumen::run {

class Panels {
 public:
  enum class Direction : uint8_t { encode, decode };
  struct Shape {
    FormatRef format;
    int64_t rows = 0, columns = 0;
    Direction direction = Direction::encode;
    bool weighed = false;  // with the importance of each column
  };

  // The memory of one converter: numbers f32[rows, columns], the panel's blob, and the importance of each column.
  // Bytes a kernel does not write keep what they were.
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
    std::shared_ptr<void> memory_;  // of the device
    std::vector<std::byte> host_;   // what is handed over, where the device does not read memory of this process
    float* values_ = nullptr;
    uint8_t* blob_ = nullptr;
    float* importance_ = nullptr;
  };

  Panels(const CompileContext& context, ChosenSteps chosen, const Shape& shape, CompileReport* report);
  Panels(const Panels&) = delete;
  Panels& operator=(const Panels&) = delete;

  // How many may convert at the same time, each in a place and a thread of its own.
  int most() const { return device_->is_asynchronous() ? 1 : threads_; }
  Place place() const;

 private:
  std::shared_ptr<Device> device_;
  int threads_ = 1;
  Direction direction_;
  std::unique_ptr<LoadedSteps> instead_;  // of the launches, where the device's are wrong
  std::vector<Launch> launches_;
  int64_t values_bytes_ = 0, blob_bytes_ = 0, importance_bytes_ = 0;
  int64_t blob_at_ = 0, importance_at_ = 0, status_at_ = 0, bytes_ = 0;
};

}  // namespace lumen::run
