// Uploads of parameters to a device in the background: several threads read the pages of a file, each with page-locked
// memory and a lane of its own, while the host compiles or loads programs. Proved by
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
  static constexpr int64_t kWorthThreads = int64_t{32} << 20;  // a smaller total is copied synchronously

  ParameterUploads(Device& device, int threads) : device_(device), threads_(threads) {}
  ~ParameterUploads();  // cancels unfinished uploads
  ParameterUploads(const ParameterUploads&) = delete;
  ParameterUploads& operator=(const ParameterUploads&) = delete;

  // As DeviceTensor::parameter, but valid only after wait(); the bytes must stay valid until then.
  DeviceTensorRef add(graph::Type type, const void* bytes, std::shared_ptr<const void> keeper);
  void begin();  // starts all added uploads; call once
  void wait();   // for all uploads; every call throws an Error if one failed

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
  std::mutex mutex_;            // guards the following members
  std::exception_ptr failure_;  // the first one of a thread
};

}  // namespace lumen::run
