// Copies between this process and a GPU, through page-locked buffers that take turns: the next piece is filled while
// the last one travels. Proved by tests/run/device/gpu_test.cpp.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <mutex>

#include "run/device/device.h"
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

// A stream of its own, for copies from and to page-locked memory while kernels run.
class GpuLane : public Device::Lane {
 public:
  explicit GpuLane(GpuContextRef context);
  ~GpuLane() override;
  void in(void* to, const void* from, int64_t bytes) override;
  void out(void* to, const void* from, int64_t bytes) override;
  void wait() override;

 private:
  GpuContextRef context_;
  void* stream_ = nullptr;
};

// Page-locked memory; ordinary memory where the system forbids that, slower and right.
std::shared_ptr<std::byte> allocate_page_locked(const GpuContextRef& context, int64_t bytes);

}  // namespace lumen::run
