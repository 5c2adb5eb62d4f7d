// Host memory for devices: zeroed, aligned, refused before the kernel's out-of-memory killer would act.
#pragma once

#include <cstdint>
#include <mutex>
#include <unordered_map>

#include "run/device/pages.h"

namespace lumen::run {

// Allocations below this size are not checked for room: the check would cost more than it saves.
constexpr int64_t kAlwaysFits = int64_t{16} << 20;

// Bytes that this process can still allocate (available.h).
int64_t available_memory();
// Bytes of the whole machine, or a lower limit.
int64_t total_memory();

class HostMemory {
 public:
  ~HostMemory();
  void* allocate(int64_t bytes, Pages pages);  // 64-byte aligned, zero; Error (exit 3) when it does not fit
  void release(void* memory);
  int64_t held() const;  // bytes allocated and not released
  int64_t peak() const;  // the most that were held

 private:
  mutable std::mutex mutex_;
  int64_t held_ = 0, peak_ = 0;
  std::unordered_map<void*, int64_t> blocks_;
};

}  // namespace lumen::run
