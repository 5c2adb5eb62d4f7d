// This processor as a device. Tasks are split into equal contiguous ranges, one per thread; kernels promise that any
// split gives the same bits. Waiting threads sleep after the OpenMP runtime's short spin. Proved by
// tests/run/device_test.cpp.
#include <omp.h>

#include <algorithm>
#include <array>
#include <cstring>

#include "base/check.h"
#include "base/error.h"
#include "run/device/device.h"
#include "run/device/memory.h"

namespace lumen::run {
namespace {

constexpr int kMaxThreads = 512;

using Kernel = void (*)(void* const* buffers, int64_t begin, int64_t end, int64_t* status);

class CpuDevice : public Device {
 public:
  CpuDevice(machine::MachineRef machine, int threads) : machine_(std::move(machine)), threads_(threads) {}

  const machine::Machine& machine() const override { return *machine_; }
  std::string describe() const override {
    return fmt::format("cpu {} with {} thread{}", machine_->name, threads_, threads_ == 1 ? "" : "s");
  }
  void* allocate(int64_t bytes) override { return memory_.allocate(bytes); }
  void release(void* memory) override { memory_.release(memory); }
  void copy_in(void* to, const void* from, int64_t bytes) override { copy(to, from, bytes); }
  void copy_out(void* to, const void* from, int64_t bytes) override { copy(to, from, bytes); }
  void synchronize() override {}

  void launch(void* kernel, void* const* buffers, int64_t tasks, LaunchStatus* status, bool small) override {
    const auto run = reinterpret_cast<Kernel>(kernel);
    const auto threads = static_cast<int>(std::min<int64_t>(small ? 1 : threads_, tasks));
    if (threads <= 1) {
      std::array<int64_t, 2> failure{};
      run(buffers, 0, tasks, failure.data());
      keep_first(failure, status);
      return;
    }
    struct alignas(64) Failure {
      std::array<int64_t, 2> value;
    };
    std::array<Failure, kMaxThreads> failures;
    for (int i = 0; i < threads; ++i) failures[static_cast<size_t>(i)].value = {0, 0};
#pragma omp parallel num_threads(threads)
    {
      // The runtime may give fewer threads than asked for: the split follows what is there.
      const int64_t me = omp_get_thread_num(), all = omp_get_num_threads();
      const auto cut = [&](int64_t i) { return tasks / all * i + std::min(i, tasks % all); };
      std::array<int64_t, 2> failure{};
      run(buffers, cut(me), cut(me + 1), failure.data());
      failures[static_cast<size_t>(me)].value = failure;
    }
    // Ranges are in order, so the first failing thread has the first failing task.
    for (int i = 0; i < threads; ++i) keep_first(failures[static_cast<size_t>(i)].value, status);
  }

 private:
  static void copy(void* to, const void* from, int64_t bytes) {
    if (bytes > 0) std::memcpy(to, from, static_cast<size_t>(bytes));
  }
  static void keep_first(const std::array<int64_t, 2>& failure, LaunchStatus* status) {
    if (status->code == 0 && failure[0] != 0) *status = {failure[0], failure[1]};
  }

  machine::MachineRef machine_;
  int threads_;
  HostMemory memory_;
};

}  // namespace

std::unique_ptr<Device> open_cpu(machine::MachineRef machine, int threads) {
  if (threads < 0 || threads > kMaxThreads)
    throw usage_error("{} threads; choose 1..{}, or 0 for all cores of this process", threads, kMaxThreads);
  if (!machine::runs_here(*machine))
    throw Error(Exit::hardware, fmt::format("this processor cannot execute code for machine {}", machine->name),
                "choose 'native', or look at what `lumen doctor` says");
  // 0: what OMP_NUM_THREADS or the set of cores of this process says.
  const int count = threads == 0 ? std::min(omp_get_max_threads(), kMaxThreads) : threads;
  return std::make_unique<CpuDevice>(std::move(machine), count);
}

}  // namespace lumen::run
