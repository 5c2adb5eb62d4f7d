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

 private:
  std::mutex mutex_;
  std::unordered_map<void*, int64_t> blocks_;
};

}  // namespace lumen::run
