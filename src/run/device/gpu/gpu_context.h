// One GPU in use: its driver's functions, its context and the stream of all work. Shared by the parts of the GPU
// device, each of which keeps it alive, so that modules and recordings may outlive the device. SharedGpu: the same GPU
// for other users in the process. Proved by tests/run/device/gpu_context_test.cpp.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "base/error.h"
#include "run/device/gpu/gpu_symbols.h"

namespace lumen::run {

// Errors with special handling; both interfaces use the same numbers.
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
  // The next use() binds the thread again: other code in this process may have bound it to another GPU.
  static void forget_use();
  // Throws the Error for a nonzero `error` of our function `name`.
  void check(int error, const char* name) const {
    if (error != 0) throw failure(error, name);
  }
  Error failure(int error, const char* name) const;
  // The host waits; meanwhile the watcher is called periodically and may throw.
  void synchronize() const;
  void await(void* event) const;
  void watch(std::function<void()> watcher) { watcher_ = std::move(watcher); }

  // Stream captures of launches: their number distinguishes events recorded in this capture from earlier ones.
  bool is_recording() const { return is_recording_; }
  int64_t recordings() const { return recordings_; }
  // Sets whether the next launch directly follows one of its own program; returns the old value. A launch sets true.
  bool set_within_program(bool is_within) { return std::exchange(within_program_, is_within); }
  void set_recording(bool is_recording) {
    is_recording_ = is_recording;
    if (is_recording) ++recordings_;
  }

 private:
  std::shared_ptr<const GpuSymbols> symbols_;
  int device_;
  std::string title_;
  uint64_t number_;  // among all contexts of this process
  void* context_ = nullptr;
  void* stream_ = nullptr;
  std::function<void()> watcher_;
  bool is_recording_ = false, within_program_ = false;
  int64_t recordings_ = 0;

  void poll(const std::function<int()>& query, const char* name) const;
};
using GpuContextRef = std::shared_ptr<GpuContext>;

// The GPU for other code in this process that uses it together with Lumen: its device number, a wait for completion of
// their work, and a thread bound to the GPU that they bound it to. May outlive the device.
class SharedGpu {
 public:
  SharedGpu(GpuContextRef context, int ordinal) : context_(std::move(context)), ordinal_(ordinal) {}
  GpuVendor vendor() const { return context_->vendor(); }
  int ordinal() const { return ordinal_; }
  const std::shared_ptr<const GpuSymbols>& driver() const { return context_->driver(); }

  // Waits for all of this process's work on the GPU, from any user: memory that others have read can then be freed. If
  // the driver does not support this, waits for Lumen's own work only.
  void finish() const noexcept;

  // A scope in which Lumen works on a GPU of that driver. Restores the thread's previous binding to a GPU at its end.
  class Visit {
   public:
    explicit Visit(std::shared_ptr<const GpuSymbols> driver);  // null: nothing is done
    ~Visit();
    Visit(const Visit&) = delete;
    Visit& operator=(const Visit&) = delete;

   private:
    std::shared_ptr<const GpuSymbols> driver_;
    void* context_ = nullptr;  // the thread's previous context; null: none
    int device_ = -1;
  };

 private:
  GpuContextRef context_;
  int ordinal_;
};

// The Error (exit 3) for a driver's error code: the function, the code's name and text, location, and a hint.
Error gpu_error(const GpuSymbols& symbols, int error, const char* name, const std::string& where,
                const std::string& more = {});

}  // namespace lumen::run
