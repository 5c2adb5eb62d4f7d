// This processor as a device. Tasks are split into contiguous ranges; kernels guarantee that any split gives the same
// bits. Proved by tests/run/device/device_test.cpp.
#include <algorithm>
#include <cstring>

#include "base/check.h"
#include "base/error.h"
#include "base/threads/threads.h"
#include "run/device/cpu/threads.h"
#include "run/device/device.h"
#include "run/device/memory.h"

namespace lumen::run {
namespace {

constexpr int kMaxThreads = 512;

class CpuDevice : public Device {
 public:
  CpuDevice(machine::MachineRef machine, int threads, Loader loader)
      : machine_(std::move(machine)), loader_(std::move(loader)), threads_(threads) {}

  const machine::Machine& machine() const override { return *machine_; }
  void flush_subnormals(bool flushes) override { threads_.flush_subnormals(flushes); }
  std::string describe() const override {
    return fmt::format("cpu {} with {} thread{}", machine_->name, threads_.count(), threads_.count() == 1 ? "" : "s");
  }
  bool reads_host_memory() const override { return true; }
  using Device::allocate;
  void* allocate(int64_t bytes, Pages pages) override { return memory_.allocate(bytes, pages); }
  void release(void* memory) override { memory_.release(memory); }
  void copy_in(void* to, const void* from, int64_t bytes) override { copy(to, from, bytes); }
  void copy_out(void* to, const void* from, int64_t bytes) override { copy(to, from, bytes); }
  DeviceMemory memory() const override { return {total_memory(), available_memory(), memory_.held(), memory_.peak()}; }
  void synchronize() override {}

  std::unique_ptr<Module> load(std::string_view object) override {
    LUMEN_CHECK(loader_, "a processor without a loader");
    return loader_({reinterpret_cast<const uint8_t*>(object.data()), object.size()});
  }

  void launch(void* kernel, std::span<void* const> buffers, const LaunchConfig& launch_config,
              LaunchStatus* status) override {
    const auto run = reinterpret_cast<KernelFunction>(kernel);
    Failure failure{};
    if (!launch_config.small) {
      failure = threads_.run(run, buffers.data(), launch_config.tasks);
    } else if (launch_config.tasks > 0) {
      run(buffers.data(), 0, launch_config.tasks, failure.data());
    }
    if (status->code == 0 && failure[0] != 0) *status = {failure[0], failure[1]};
  }

 private:
  static void copy(void* to, const void* from, int64_t bytes) {
    if (bytes > 0) std::memcpy(to, from, bytes);
  }

  machine::MachineRef machine_;
  Loader loader_;
  HostMemory memory_;
  Threads threads_;
};

}  // namespace

std::unique_ptr<Device> open_cpu(machine::MachineRef machine, int threads, Loader loader) {
  if (threads < 0 || threads > kMaxThreads)
    throw usage_error("{} threads; choose 1..{}, or 0 for all cores of this process", threads, kMaxThreads);
  if (!machine::runs_here(*machine))
    throw Error(Exit::hardware, fmt::format("this processor cannot execute code for machine {}", machine->name),
                "choose 'native', or see `lumen doctor`");
  // 0: OMP_NUM_THREADS, or the size of this process's core set.
  const int count = threads == 0 ? std::min(usable_cores(), kMaxThreads) : threads;
  return std::make_unique<CpuDevice>(std::move(machine), count, std::move(loader));
}

}  // namespace lumen::run
