// Memory of a GPU: zeroed, refused before it is asked for when it does not fit, from the driver's stream-ordered pool
// where there is one. Proved by tests/run/device/gpu_test.cpp.
#pragma once

#include <atomic>
#include <mutex>
#include <unordered_map>

#include "run/device/device.h"
#include "run/device/gpu/gpu_context.h"

namespace lumen::run {

class GpuMemory {
 public:
  // `in_host_memory`: what the GPU takes is taken from the system.
  GpuMemory(GpuContextRef context, bool in_host_memory);
  ~GpuMemory();

  void* allocate(int64_t bytes);  // Error (exit 3) when it does not fit
  void release(void* memory);
  // free: what the driver has left, and what the pool holds unused; where the memory is the system's, no more than that
  // has left: the driver does not count what programs on the processor hold.
  DeviceMemory state() const;
  bool pooled() const { return pool_ != nullptr; }

 private:
  int take(void** memory, int64_t bytes);
  void give_back(void* memory, bool from_pool) const;
  Error refusal(int64_t bytes) const;

  struct Block {
    int64_t bytes;
    bool from_pool;
  };
  GpuContextRef context_;
  bool in_host_memory_;
  void* pool_ = nullptr;
  std::mutex mutex_;
  std::atomic<int64_t> held_ = 0, peak_ = 0;  // state() is asked with and without the lock
  std::unordered_map<void*, Block> blocks_;
};

}  // namespace lumen::run
