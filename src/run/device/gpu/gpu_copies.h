// Copies between this process and a GPU, through page-locked buffers that take turns: the next piece is filled while
// the last one travels. Proved by tests/run/device/gpu_test.cpp.
#pragma once

#include <array>
#include <cstdint>
#include <mutex>

#include "run/device/gpu/gpu_context.h"

namespace lumen::run {

class GpuCopies {
 public:
  explicit GpuCopies(GpuContextRef context);
  ~GpuCopies();

  void in(void* to, const void* from, int64_t bytes);   // `from` may change at once; the copy is ordered
  void out(void* to, const void* from, int64_t bytes);  // waits for everything before it
  bool page_locked() const { return page_locked_; }

 private:
  struct Chunk {
    std::byte* host = nullptr;
    void* event = nullptr;
    bool in_flight = false;  // the event was recorded behind the last copy
  };
  void make(Chunk& chunk);
  void free_all();
  void turn();

  GpuContextRef context_;
  std::mutex mutex_;
  bool page_locked_ = true;
  std::array<Chunk, 2> up_, down_;
  size_t filling_ = 0;  // of up_
  int64_t filled_ = 0;  // bytes of it
};

}  // namespace lumen::run
