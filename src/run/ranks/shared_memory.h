// Ranks of one host over shared memory. Every pair has two boxes in each direction (double buffering), and every rank
// has a bell that wakes it after a put or a take; there is no busy waiting. A rank holds a robust mutex for its
// lifetime: the kernel reports its death, whatever the cause. Proved by tests/run/ranks/ranks_test.cpp and
// launch_test.cpp.
#pragma once

#include <memory>
#include <string>

#include "run/ranks/transport.h"

namespace lumen::run {

// Memory for `size` ranks; processes forked from its creator share it.
class SharedMemory {
 public:
  explicit SharedMemory(int size);
  ~SharedMemory();
  SharedMemory(const SharedMemory&) = delete;
  SharedMemory& operator=(const SharedMemory&) = delete;
  int size() const { return size_; }
  // Called by the process that watches the ranks, when one of them has ended.
  void report_lost(int rank, const std::string& why) noexcept;
  void* memory() const { return memory_; }

 private:
  int size_;
  void* memory_ = nullptr;
  int64_t bytes_ = 0;
};

// This thread becomes a rank for the lifetime of the transport.
std::unique_ptr<Transport> join_shared_memory(std::shared_ptr<SharedMemory> memory, int rank);

}  // namespace lumen::run
