// One GPU in use: its driver's functions, its context and the stream all work goes through. What the parts of the GPU
// device share; kept alive by every one of them, so that modules and recordings may outlive the device. And the same
// GPU as others in the process see it. Proved by tests/run/device/gpu_context_test.cpp.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "base/error.h"
#include "run/device/gpu/gpu_symbols.h"

namespace lumen::run {

// Errors of both interfaces that are treated apart; they number them alike.
enum GpuError : int { kGpuOutOfMemory = 2, kGpuNoDevice = 100, kGpuNotReady = 600, kGpuNotSupported = 801 };

class GpuContext {
 public:
  // `title`: "cuda:0 NAME", for messages.
  GpuContext(std::shared_ptr<const GpuSymbols> symbols, int device, std::string title);
  ~GpuContext();
  GpuContext(const GpuContext&) = delete;
  GpuContext& operator=(const GpuContext&) = delete;

  const GpuSymbols& symbols() const { return *symbols_; }
  const std::shared_ptr<const GpuSymbols>& driver() const { return symbols_; }
  GpuVendor vendor() const { return symbols_->vendor; }
  int device() const { return device_; }
  void* stream() const { return stream_; }
  const std::string& title() const { return title_; }

  void use() const;  // binds the calling thread to this GPU; before every other call
  // The next use() binds the thread again: others in this process may have bound it to another GPU.
  static void forget_use();
  // Throws what `error` of the function of ours called `name` means, unless it is 0.
  void check(int error, const char* name) const {
    if (error != 0) throw failure(error, name);
  }
  Error failure(int error, const char* name) const;
  // The host waits; meanwhile the watcher is asked now and then whether that has an end.
  void synchronize() const;
  void await(void* event) const;
  void watch(std::function<void()> watcher) { watcher_ = std::move(watcher); }

  // Recordings of the stream of launches: those of events that others recorded before are known by their number.
  bool is_recording() const { return is_recording_; }
  int64_t recordings() const { return recordings_; }
  // Whether the launch before is of the same program, with nothing between; false is forgotten by the next launch.
  bool set_within_program(bool is_within) { return std::exchange(within_program_, is_within); }
  void set_recording(bool is_recording) {
    is_recording_ = is_recording;
    if (is_recording) ++recordings_;
  }

 private:
  std::shared_ptr<const GpuSymbols> symbols_;
  int device_;
  std::string title_;
  uint64_t number_;  // of all contexts this process has made
  void* context_ = nullptr;
  void* stream_ = nullptr;
  std::function<void()> watcher_;
  bool is_recording_ = false, within_program_ = false;
  int64_t recordings_ = 0;

  void poll(const std::function<int()>& query, const char* name) const;
};
using GpuContextRef = std::shared_ptr<GpuContext>;

// The GPU as others in this process see it, who use it beside Lumen: where its memory lies as they number it, when they
// have done with it, and a thread that is bound to the GPU they bound it to. May outlive the device.
class SharedGpu {
 public:
  SharedGpu(GpuContextRef context, int ordinal) : context_(std::move(context)), ordinal_(ordinal) {}
  GpuVendor vendor() const { return context_->vendor(); }
  int ordinal() const { return ordinal_; }
  const std::shared_ptr<const GpuSymbols>& driver() const { return context_->driver(); }

  // Waits for all that this process has asked of the GPU, by whomever: memory that others have read may then be given
  // back. A driver that cannot say is waited for as far as Lumen's own work goes.
  void finish() const noexcept;

  // While one of these lives Lumen works on a GPU of that driver. Others may have bound the thread to another GPU
  // before, and find it so behind.
  class Visit {
   public:
    explicit Visit(std::shared_ptr<const GpuSymbols> driver);  // null: nothing is done
    ~Visit();
    Visit(const Visit&) = delete;
    Visit& operator=(const Visit&) = delete;

   private:
    std::shared_ptr<const GpuSymbols> driver_;
    void* context_ = nullptr;  // the thread's; null: it had none
    int device_ = -1;
  };

 private:
  GpuContextRef context_;
  int ordinal_;
};

// The Error (exit 3) a code of a driver means: the function, the code's name and text, where, and what to do.
Error gpu_error(const GpuSymbols& symbols, int error, const char* name, const std::string& where,
                const std::string& more = {});

}  // namespace lumen::run
