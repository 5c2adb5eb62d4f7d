// Host memory for devices: zeroed, aligned, refused before the system would have to kill somebody.
#pragma once

#include <cstdint>
#include <mutex>
#include <unordered_map>

namespace lumen::run {

// Bytes this process may still take: the smaller of what the system and its control group have left.
int64_t available_memory();
// Bytes of the whole machine, or of the control group where that is less.
int64_t total_memory();

class HostMemory {
 public:
  ~HostMemory();
  void* allocate(int64_t bytes);  // 64-byte aligned, zero; Error (exit 3) when it does not fit
  void release(void* memory);
  int64_t held() const;  // bytes allocated and not released
  int64_t peak() const;  // the most that were held

 private:
  mutable std::mutex mutex_;
  int64_t held_ = 0, peak_ = 0;
  std::unordered_map<void*, int64_t> blocks_;
};

}  // namespace lumen::run
