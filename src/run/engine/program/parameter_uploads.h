// Parameters on their way to a device while the host does other things: reads the pages of a file on several threads,
// each with page-locked memory and a lane of its own, and meanwhile programs are compiled or found. Proved by
// tests/run/engine/program/parameter_uploads_test.cpp.
#pragma once

#include <atomic>
#include <exception>
#include <mutex>
#include <vector>

#include "base/threads/threads.h"
#include "run/engine/program/tensor.h"

namespace lumen::run {

class ParameterUploads {
 public:
  static constexpr int64_t kWorthThreads = int64_t{32} << 20;  // fewer bytes in all are copied at once

  ParameterUploads(Device& device, int threads) : device_(device), threads_(threads) {}
  ~ParameterUploads();  // gives up what is not there yet
  ParameterUploads(const ParameterUploads&) = delete;
  ParameterUploads& operator=(const ParameterUploads&) = delete;

  // As DeviceTensor::parameter, to be read after wait() only; until then the bytes stay.
  DeviceTensorRef add(graph::Type type, const void* bytes, std::shared_ptr<const void> keeper);
  void begin();  // of all that were added; once
  void wait();   // until all are there; Error where one could not be copied, each time

 private:
  struct Piece {
    std::byte* to;
    const std::byte* from;
    int64_t bytes;
  };
  void carry(Device::Lane& lane);

  Device& device_;
  int threads_;
  std::vector<DeviceTensorRef> tensors_;
  std::vector<std::shared_ptr<const void>> keepers_;
  std::vector<Piece> pieces_;
  std::vector<std::unique_ptr<Device::Lane>> lanes_;
  std::atomic<size_t> next_{0};  // piece
  std::vector<Thread> carriers_;
  std::mutex waiting_;
  std::mutex mutex_;            // guards what follows
  std::exception_ptr failure_;  // the first of a carrier
};

}  // namespace lumen::run
