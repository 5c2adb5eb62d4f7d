// Ranks of one host that share memory. Every pair has two boxes in each direction, and every rank a bell that whoever
// has put or taken something rings; nobody spins. A rank holds a robust mutex while it lives: the kernel says when it
// has died, however it died. Proved by tests/run/ranks/ranks_test.cpp and launch_test.cpp.
#pragma once

#include <memory>
#include <string>

#include "run/ranks/transport.h"

namespace lumen::run {

// Memory for so many ranks; a process that was forked from the one that made it has it, too.
class SharedMemory {
 public:
  explicit SharedMemory(int size);
  ~SharedMemory();
  SharedMemory(const SharedMemory&) = delete;
  SharedMemory& operator=(const SharedMemory&) = delete;
  int size() const { return size_; }
  // Somebody who watches the ranks from outside knows that one of them has ended.
  void report_lost(int rank, const std::string& why) noexcept;
  void* memory() const { return memory_; }

 private:
  int size_;
  void* memory_ = nullptr;
  int64_t bytes_ = 0;
};

// This thread becomes a rank and stays it for as long as the transport lives.
std::unique_ptr<Transport> join_shared_memory(std::shared_ptr<SharedMemory> memory, int rank);

}  // namespace lumen::run
