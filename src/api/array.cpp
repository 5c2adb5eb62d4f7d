#include "api/array.h"

#include <cstring>
#include <utility>

#include "api/boundary.h"
#include "base/error.h"
#include "run/device/choose/choose.h"

using namespace lumen;  // NOLINT: this file is the C interface and is included by no other

namespace lumen::api {

std::string place_name(const lumen_device& device) {
  if (device.kind == LUMEN_CPU) return "the processor";
  const char* const vendor = device.kind == LUMEN_CUDA ? "cuda" : device.kind == LUMEN_ROCM ? "hip" : nullptr;
  return vendor ? fmt::format("{}:{}", vendor, device.id)
                : fmt::format("number {} of devices of DLPack's kind {}", device.id, device.kind);
}

// A GPU that is opened becomes the thread's current one. For a named GPU the visit restores the previous one at its
// end; a GPU that "auto" finds stays current.
Place::Place(run::Engine::Options options) {
  const run::DeviceChoice choice = run::parse_device(options.device);
  const bool is_gpu = choice.kind == run::DeviceChoice::Kind::gpu;
  const run::SharedGpu::Visit visit(is_gpu ? run::open_gpu_library(choice.vendor) : nullptr);
  engine_ = std::make_unique<run::Engine>(std::move(options));
  gpu_ = run::shared_gpu(engine_->device());
  device_.kind = LUMEN_CPU;
  if (!gpu_) return;
  device_.kind = gpu_->vendor() == run::GpuVendor::cuda ? LUMEN_CUDA : LUMEN_ROCM;
  device_.id = gpu_->ordinal();
  stream_ = engine_->device().make_stream();
  device_.stream = stream_->native();
}

Place::~Place() {
  const run::SharedGpu::Visit visit(driver());
  if (gpu_ && !given_back_.empty()) gpu_->finish();
  given_back_.clear();
  stream_.reset();
  engine_.reset();
  gpu_.reset();
}

Place::Work::Work(Place& place) : place_(place), lock_(place.mutex_), visit_(std::in_place, place.driver()) {
  place.worker_ = std::this_thread::get_id();
}

// Memory that was given back during this work was left for this thread to free.
Place::Work::~Work() {
  visit_.reset();
  place_.worker_ = std::thread::id();
  lock_.unlock();
  place_.free_given_back();
}

void Place::copy(void* to, const void* from, int64_t bytes) {
  if (!stream_) {
    std::memcpy(to, from, size_t(bytes));
    return;
  }
  stream_->follow_launches();
  stream_->copy(to, from, bytes);
  stream_->mark(0);
  stream_->hold_launches(0);
}

void Place::give_back(std::shared_ptr<std::byte> memory) {
  {
    const std::lock_guard lock(given_back_mutex_);
    given_back_.push_back(std::move(memory));
  }
  free_given_back();
}

// While launches are being recorded, a release would be recorded with them, so memory is freed only while no work runs.
// Kernels of another user of the array may still read it on the device, so the free waits for them.
void Place::free_given_back() {
  for (;;) {
    {
      const std::lock_guard lock(given_back_mutex_);
      if (given_back_.empty()) return;
    }
    const std::unique_lock work(mutex_, std::try_to_lock);
    if (!work) return;
    const run::SharedGpu::Visit visit(driver());
    std::vector<std::shared_ptr<std::byte>> free;
    {
      const std::lock_guard lock(given_back_mutex_);
      free.swap(given_back_);
    }
    if (gpu_) gpu_->finish();
  }
}

std::unique_ptr<lumen_array> make_array(const std::shared_ptr<Place>& place, std::vector<int64_t> shape) {
  auto out = std::make_unique<lumen_array>();
  out->place = place;
  out->shape = std::move(shape);
  out->memory = place->engine().allocate(out->bytes());
  return out;
}

}  // namespace lumen::api

lumen_array::~lumen_array() {
  if (memory) place->give_back(std::move(memory));
}

int64_t lumen_array::count() const {
  int64_t out = 1;
  for (const int64_t extent : shape) out *= extent;
  return out;
}

extern "C" {

int lumen_array_info(lumen_array* array, lumen_device* device, int* rank, const int64_t** shape, float** data) {
  return api::guarded([&] {
    api::require(array, "array");
    if (device) *device = array->place->device();
    if (rank) *rank = int(array->shape.size());
    if (shape) *shape = array->shape.data();
    if (data) *data = array->data();
  });
}

int lumen_array_read(lumen_array* array, float* to, size_t count) {
  return api::guarded([&] {
    api::require(array, "array");
    api::require(to, "to");
    if (count != size_t(array->count()))
      throw usage_error("there is room for {} numbers, and the array has {}", count, array->count());
    const api::Place::Work work(*array->place);
    array->place->engine().device().copy_out(to, array->data(), array->bytes());
  });
}

int lumen_array_copy(lumen_array* array, lumen_array** copy) {
  return api::guarded([&] {
    api::require(array, "array");
    api::require(copy, "copy");
    const api::Place::Work work(*array->place);
    auto made = api::make_array(array->place, array->shape);
    array->place->copy(made->data(), array->data(), array->bytes());
    array->place->engine().device().synchronize();
    *copy = made.release();
  });
}

void lumen_array_free(lumen_array* array) {
  delete array;
}

}  // extern "C"
