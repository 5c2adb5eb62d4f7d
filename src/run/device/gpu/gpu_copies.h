// Copies between this process and a GPU through double-buffered page-locked memory: the next piece is filled while the
// last one is transferred; and additional streams. Proved by tests/run/device/gpu_test.cpp.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "run/device/device.h"
#include "run/device/gpu/gpu_context.h"

namespace lumen::run {

class GpuCopies {
 public:
  explicit GpuCopies(GpuContextRef context);
  ~GpuCopies();

  void in(void* to, const void* from, int64_t bytes);   // `from` may change after the return; ordered with launches
  void out(void* to, const void* from, int64_t bytes);  // waits for everything before it
  bool page_locked() const { return page_locked_; }

 private:
  struct Chunk {
    std::byte* host = nullptr;
    void* event = nullptr;
    bool in_flight = false;  // the event was recorded after the last copy
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

// A separate stream for copies from and to page-locked memory while kernels run.
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

// A second stream of work on the device (Device::Stream).
class GpuStream : public Device::Stream {
 public:
  explicit GpuStream(GpuContextRef context);
  ~GpuStream() override;
  void* native() override;
  void copy(void* to, const void* from, int64_t bytes) override;
  void follow_launches() override;
  void mark(size_t point) override;
  void hold_launches(size_t point) override;
  bool holds_replays() const override { return context_->vendor() == GpuVendor::cuda; }
  void watch(std::function<void()> watcher) override { context_->watch(std::move(watcher)); }

 private:
  struct Point {
    void* event = nullptr;
    int64_t recording = 0;  // number of its recording; 0: none
  };
  void* make_event() const;

  GpuContextRef context_;
  void* stream_ = nullptr;
  void* launched_ = nullptr;  // an event
  std::vector<Point> points_;
};

// Memory that streams are still writing (Device::await_before_use).
class AwaitedPlaces {
 public:
  bool launches_wait_themselves = false;
  void add(Device::Stream& stream, size_t point, std::vector<std::span<const std::byte>> places) {
    waits_.push_back({&stream, point, std::move(places)});
  }
  void before_use(const void* memory, int64_t bytes);
  void before_launch() {
    if (!launches_wait_themselves) hold_all();
  }
  void hold_all();
  void forget() { waits_.clear(); }

 private:
  struct Wait {
    Device::Stream* stream;
    size_t point;
    std::vector<std::span<const std::byte>> places;
  };
  std::vector<Wait> waits_;
};

// Page-locked memory, or pageable memory if the system forbids that: slower but correct.
std::shared_ptr<std::byte> allocate_page_locked(const GpuContextRef& context, int64_t bytes);

}  // namespace lumen::run
