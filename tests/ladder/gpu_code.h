// Executes kernels on a GPU of this machine (tests/run/named_gpu.h), through the device that the engine uses: what the
// ladder's GPU rung needs and no more. Everything is copied in and out for every kernel.
#pragma once

#include <cstring>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "emit/emit.h"
#include "tests/kernel/synth/synth_harness.h"
#include "tests/run/named_gpu.h"

namespace lumen::test {

class GpuCode {
 public:
  // Null where there is no such device; Error where one is named that cannot be used.
  static GpuCode* open() {
    static std::unique_ptr<GpuCode> one = [] {
      NamedGpu gpu = open_named_gpu();
      return gpu.device ? std::unique_ptr<GpuCode>(new GpuCode(std::move(gpu.device))) : nullptr;
    }();
    return one.get();
  }

  const machine::Machine& machine() const { return device_->machine(); }

  // Compiles kernels together, so that a test of many small ones is quick.
  void prepare(const std::vector<loop::Kernel>& kernels) {
    const std::string object = device_->prepare(emit::emit(kernels, machine(), emit::Output::object));
    modules_.push_back(device_->load(object));
    for (const loop::Kernel& k : kernels) {
      const std::string symbol = emit::symbol_name(k);
      functions_[symbol] = modules_.back()->find(symbol, emit::launch_shape(k, machine()).shared_bytes);
    }
  }

  // Buffers begin on 256 byte boundaries; bytes behind them are watched.
  loop::Status run(const loop::Kernel& k, std::span<const std::span<uint8_t>> buffers) {
    const std::string symbol = emit::symbol_name(k);
    if (!functions_.contains(symbol)) prepare({k});
    std::vector<void*> places;
    for (const auto& b : buffers) places.push_back(put(b));
    run::LaunchStatus status;
    void* const said = device_->allocate(sizeof status);
    const emit::LaunchShape shape = emit::launch_shape(k, machine());
    device_->launch(functions_[symbol], places,
                    {k.tasks, false, shape.blocks, static_cast<int>(shape.threads), shape.shared_bytes},
                    static_cast<run::LaunchStatus*>(said));
    device_->synchronize();
    for (size_t i = 0; i < places.size(); ++i) {
      const size_t bytes = buffers[i].size();
      std::vector<uint8_t> padded(bytes + kGuard);
      device_->copy_out(padded.data(), places[i], static_cast<int64_t>(padded.size()));
      std::memcpy(buffers[i].data(), padded.data(), bytes);
      for (size_t g = bytes; g < padded.size(); ++g)
        EXPECT_EQ(padded[g], 0xa5) << k.name << " wrote behind buffer " << i;
      device_->release(places[i]);
    }
    device_->copy_out(&status, said, sizeof status);
    device_->release(said);
    return {static_cast<int>(status.code), status.detail};
  }

  Execute execute() {
    return [this](const loop::Kernel& k, std::span<const std::span<uint8_t>> buffers) { return run(k, buffers); };
  }

 private:
  static constexpr size_t kGuard = 256;

  explicit GpuCode(std::unique_ptr<run::Device> device) : device_(std::move(device)) {}

  void* put(std::span<const uint8_t> b) {
    std::vector<uint8_t> padded(b.begin(), b.end());
    padded.resize(b.size() + kGuard, 0xa5);
    void* const at = device_->allocate(static_cast<int64_t>(padded.size()));
    device_->copy_in(at, padded.data(), static_cast<int64_t>(padded.size()));
    return at;
  }

  std::unique_ptr<run::Device> device_;
  std::vector<std::unique_ptr<run::Module>> modules_;
  std::map<std::string, void*> functions_;
};

}  // namespace lumen::test
