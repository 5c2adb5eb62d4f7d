// Arrays that stay on the device of a model or a function, and the lock that serializes work on that device.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "include/lumen.h"
#include "run/device/gpu/gpu.h"
#include "run/engine/engine.h"

namespace lumen::api {

// The device's name for messages: "cuda:0", "the processor".
std::string place_name(const lumen_device& device);

// A handle's engine and its device. It lives as long as the handle and all arrays that came from the handle.
class Place {
 public:
  explicit Place(run::Engine::Options options);
  ~Place();
  Place(const Place&) = delete;
  Place& operator=(const Place&) = delete;

  run::Engine& engine() { return *engine_; }
  const lumen_device& device() const { return device_; }
  // Exclusive use by one thread. Its GPU context is current on that thread only during the Work.
  class Work {
   public:
    explicit Work(Place& place);
    ~Work();
    Work(const Work&) = delete;
    Work& operator=(const Work&) = delete;

   private:
    Place& place_;
    std::unique_lock<std::mutex> lock_;
    std::optional<run::SharedGpu::Visit> visit_;
  };

  // Copies within the device. The copy runs after earlier launches and after the work that callers queued on
  // device().stream, and later launches run after the copy. Call during Work, in the order of the copies.
  void copy(void* to, const void* from, int64_t bytes);
  // Frees memory that is no longer used: at once, or when the running Work ends. The caller does not wait.
  void give_back(std::shared_ptr<std::byte> memory);

 private:
  void free_given_back();
  std::shared_ptr<const run::GpuSymbols> driver() const { return gpu_ ? gpu_->driver() : nullptr; }

  std::unique_ptr<run::Engine> engine_;
  std::shared_ptr<run::SharedGpu> gpu_;
  lumen_device device_{};
  std::mutex mutex_, given_back_mutex_;
  std::atomic<std::thread::id> worker_;  // the thread that holds mutex_
  std::vector<std::shared_ptr<std::byte>> given_back_;
  std::unique_ptr<run::Device::Stream> stream_;
};

// An array of zeros. Call during Work.
std::unique_ptr<lumen_array> make_array(const std::shared_ptr<Place>& place, std::vector<int64_t> shape);

}  // namespace lumen::api

struct lumen_array {
  std::shared_ptr<lumen::api::Place> place;
  std::shared_ptr<std::byte> memory;
  std::vector<int64_t> shape;

  ~lumen_array();
  int64_t count() const;
  int64_t bytes() const { return count() * int64_t{sizeof(float)}; }
  float* data() const { return reinterpret_cast<float*>(memory.get()); }
};
