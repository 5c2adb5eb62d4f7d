// See gpu_context.h. Proved by tests/run/device/gpu_test.cpp.
#include "run/device/gpu/gpu_context.h"

#include <atomic>
#include <chrono>
#include <thread>

namespace lumen::run {
namespace {

constexpr unsigned kStreamOfItsOwn = 1;  // does not synchronize with the default stream; both interfaces

std::atomic<uint64_t> contexts_made{0};
thread_local uint64_t context_in_use = 0;

struct Advice {
  int error;
  const char* text;
};

// By error code; other codes need no advice.
constexpr Advice kAdvice[] = {
    {kGpuOutOfMemory, "choose a smaller batch, context or format, or end other programs on this GPU"},
    {34, "a stub of the library was opened: install the real driver"},
    {35, "the driver is older than the library: install a newer driver"},
    {36, "install a newer driver"},
    {46, "the GPU is busy in exclusive mode, or was taken away"},
    {kGpuNoDevice,
     "no GPU is visible: look at CUDA_VISIBLE_DEVICES or HIP_VISIBLE_DEVICES, and at the driver's own tool"},
    {101, "the GPU's number is too large, or the GPU is gone"},
    {200, "the kernel's code is not for this GPU; --cache off rules out a damaged cache"},
    {209,
     "the kernel's code is not for this GPU; --machine names another. Generic code (gfx11-generic) needs a ROCm that "
     "supports code objects of version 6"},
    {214, "the GPU's memory has failed: results are lost; look at the driver's log"},
    {218, "the driver's compiler rejects the code: a newer driver may accept it; --machine names an older target"},
    {221, "the driver's compiler library is missing: reinstall the driver"},
    {222, "the driver is too old for this code: install a newer driver, or name an older target with --machine"},
    {700, "a kernel read or wrote outside its memory: the run cannot go on; please report it with the command"},
    {701, "the kernel needs more registers or shared memory than the GPU has; --machine names another target"},
    {702, "a kernel ran longer than the system allows: the GPU also drives a display"},
    {716, "a kernel used a misaligned address: please report it with the command"},
    {719, "a kernel failed on the GPU: the run cannot go on; look at the driver's log"},
    {802, "the GPU's fabric is not ready yet: try again"},
    {803, "the driver's library and kernel module differ: restart the machine"},
    {804, "the compatibility library does not support this GPU: install a newer driver"},
};

}  // namespace

Error gpu_error(const GpuSymbols& symbols, int error, const char* name, const std::string& where,
                const std::string& more) {
  const char *code = nullptr, *text = nullptr;
  if (symbols.error_name(error, &code) != 0 || !code) code = "unknown error";
  if (symbols.error_text(error, &text) != 0 || !text) text = "no description";
  std::string advice;
  for (const Advice& a : kAdvice)
    if (a.error == error) advice = a.text;
  if (advice.empty()) advice = "`lumen doctor` lists this machine's devices; --device cpu always works";
  return {Exit::hardware,
          fmt::format("{}: {} {} ({}){}{}", where, symbol_of(symbols.vendor, name), code, error,
                      std::string(": ") + text, more.empty() ? "" : "\n" + more),
          advice};
}

GpuContext::GpuContext(std::shared_ptr<const GpuSymbols> symbols, int device, std::string title)
    : symbols_(std::move(symbols)), device_(device), title_(std::move(title)), number_(++contexts_made) {
  if (symbols_->context_retain) check(symbols_->context_retain(&context_, device_), "context_retain");
  try {
    use();
    check(symbols_->stream_create(&stream_, kStreamOfItsOwn), "stream_create");
  } catch (...) {
    if (context_) symbols_->context_release(device_);
    throw;
  }
}

GpuContext::~GpuContext() {
  const int bound = symbols_->context_set ? symbols_->context_set(context_) : symbols_->device_set(device_);
  if (bound == 0) {
    symbols_->stream_synchronize(stream_);
    symbols_->stream_destroy(stream_);
  }
  if (context_) symbols_->context_release(device_);
  context_in_use = 0;
}

void GpuContext::use() const {
  if (context_in_use == number_) return;
  if (symbols_->context_set) {
    check(symbols_->context_set(context_), "context_set");
  } else {
    check(symbols_->device_set(device_), "device_set");
  }
  context_in_use = number_;
}

void GpuContext::forget_use() {
  context_in_use = 0;
}

Error GpuContext::failure(int error, const char* name) const {
  return gpu_error(*symbols_, error, name, title_);
}

void GpuContext::poll(const std::function<int()>& query, const char* name) const {
  constexpr std::chrono::milliseconds kBetween(100);
  auto last = std::chrono::steady_clock::now();
  while (true) {
    const int state = query();
    if (state == 0) return;
    if (state != kGpuNotReady) check(state, name);
    const auto now = std::chrono::steady_clock::now();
    if (now - last < kBetween) {
      std::this_thread::yield();
      continue;
    }
    last = now;
    watcher_();
  }
}

void GpuContext::synchronize() const {
  use();
  if (watcher_ && symbols_->stream_query) poll([&] { return symbols_->stream_query(stream_); }, "stream_query");
  check(symbols_->stream_synchronize(stream_), "stream_synchronize");
}

void GpuContext::await(void* event) const {
  if (watcher_ && symbols_->event_query) poll([&] { return symbols_->event_query(event); }, "event_query");
  check(symbols_->event_synchronize(event), "event_synchronize");
}

void SharedGpu::finish() const noexcept {
  try {
    if (context_->symbols().context_finish) {
      context_->use();
      context_->symbols().context_finish();
    } else {
      context_->synchronize();
    }
  } catch (const Error&) {
    // after a failure every call fails, and the context frees its memory
  }
}

SharedGpu::Visit::Visit(std::shared_ptr<const GpuSymbols> driver) : driver_(std::move(driver)) {
  if (!driver_) return;
  if (driver_->context_get && driver_->context_get(&context_) != 0) context_ = nullptr;
  if (driver_->device_current && driver_->device_current(&device_) != 0) device_ = -1;
  GpuContext::forget_use();
}

SharedGpu::Visit::~Visit() {
  if (!driver_) return;
  if (driver_->context_set && context_) driver_->context_set(context_);
  if (driver_->device_set && device_ >= 0) driver_->device_set(device_);
  GpuContext::forget_use();
}

}  // namespace lumen::run
