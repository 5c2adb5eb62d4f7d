// GPU memory: zeroed, refused before allocation if it does not fit, from the driver's stream-ordered pool if available.
// Proved by tests/run/device/gpu_test.cpp.
#pragma once

#include <atomic>
#include <mutex>
#include <unordered_map>

#include "run/device/device.h"
#include "run/device/gpu/gpu_context.h"

namespace lumen::run {

class GpuMemory {
 public:
  // `in_host_memory`: the GPU allocates from the system's memory.
  GpuMemory(GpuContextRef context, bool in_host_memory);
  ~GpuMemory();

  void* allocate(int64_t bytes);  // Error (exit 3) if it does not fit
  void release(void* memory);
  // free: the driver's free memory plus unused memory of the pool; for shared memory, at most the system's free memory:
  // the driver does not count memory used by the CPU's programs.
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
  std::atomic<int64_t> held_ = 0, peak_ = 0;  // state() is called with and without the lock
  std::unordered_map<void*, Block> blocks_;
};

}  // namespace lumen::run
