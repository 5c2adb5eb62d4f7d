// Numbers on the device of a model or a function, handed over where they lie, and the lock that work on that device
// goes by.
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

// Where numbers lie, for people: "cuda:0", "the processor".
std::string place_name(const lumen_device& device);

// A handle's engine, and its device as others in this process see it. Lasts as long as the handle and the arrays that
// it handed over.
class Place {
 public:
  explicit Place(run::Engine::Options options);
  ~Place();
  Place(const Place&) = delete;
  Place& operator=(const Place&) = delete;

  run::Engine& engine() { return *engine_; }
  const lumen_device& device() const { return device_; }
  // One thread at a time, whose GPU is others' again behind it.
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

  // Copies within the device, behind launches and what others ordered into device().stream; launches come behind them.
  // During Work, in the order of its calls.
  void copy(void* to, const void* from, int64_t bytes);
  // Takes memory that nobody has a use for any more. At once, or when work that is under way has ended: who gives it
  // back need not wait.
  void give_back(std::shared_ptr<std::byte> memory);

 private:
  void free_given_back();
  std::shared_ptr<const run::GpuSymbols> driver() const { return gpu_ ? gpu_->driver() : nullptr; }

  std::unique_ptr<run::Engine> engine_;
  std::shared_ptr<run::SharedGpu> gpu_;
  lumen_device device_{};
  std::mutex mutex_, given_back_mutex_;
  std::atomic<std::thread::id> worker_;  // who has mutex_
  std::vector<std::shared_ptr<std::byte>> given_back_;
  std::unique_ptr<run::Device::Stream> stream_;
};

// An array of zeros. During Work.
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
