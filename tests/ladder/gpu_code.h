// Executes kernels on the NVIDIA GPU of this machine, through the driver library it opens at run time: what the
// ladder's GPU rung needs and no more. Everything is copied in and out for every kernel.
#pragma once

#include <dlfcn.h>

#include <map>
#include <optional>

#include "emit/emit.h"
#include "tests/kernel/synth/synth_harness.h"

namespace lumen::test {

class GpuCode {
 public:
  // Null where there is no such device.
  static GpuCode* open() {
    static std::unique_ptr<GpuCode> one = [] {
      auto g = std::unique_ptr<GpuCode>(new GpuCode);
      return g->find() ? std::move(g) : nullptr;
    }();
    return one.get();
  }

  const machine::Machine& machine() const { return *machine_; }

  // Compiles kernels together, so that a test of many small ones is quick.
  void prepare(const std::vector<loop::Kernel>& kernels) {
    std::string text = emit::emit(kernels, *machine_, emit::Output::object);
    text += '\0';
    void* module = nullptr;
    need(load_(&module, text.data()), "cuModuleLoadData");
    modules_.push_back(module);
    for (const loop::Kernel& k : kernels) {
      const std::string symbol = emit::symbol_name(k);
      void* f = nullptr;
      need(get_(&f, module, symbol.c_str()), "cuModuleGetFunction");
      functions_[symbol] = f;
    }
  }

  // Buffers begin on 256 byte boundaries; bytes behind them are watched.
  loop::Status run(const loop::Kernel& k, std::span<const std::span<uint8_t>> buffers) {
    const std::string symbol = emit::symbol_name(k);
    if (!functions_.contains(symbol)) prepare({k});
    constexpr size_t kGuard = 256;
    std::vector<uint64_t> places;
    std::vector<void*> arguments;
    int64_t status[2] = {0, 0};
    const auto put = [&](const uint8_t* data, size_t bytes) {
      std::vector<uint8_t> padded(data, data + bytes);
      padded.resize(bytes + kGuard, 0xa5);
      places.push_back(0);
      need(allocate_(&places.back(), padded.size()), "cuMemAlloc");
      need(copy_in_(places.back(), padded.data(), padded.size()), "cuMemcpyHtoD");
    };
    for (const auto& b : buffers) put(b.data(), b.size());
    put(reinterpret_cast<const uint8_t*>(status), sizeof(status));
    for (uint64_t& p : places) arguments.push_back(&p);
    const emit::LaunchShape shape = emit::launch_shape(k, *machine_);
    if (shape.shared_bytes > 0)
      need(set_(functions_[symbol], 8, static_cast<int>(shape.shared_bytes)), "cuFuncSetAttribute");
    need(launch_(functions_[symbol], static_cast<unsigned>(shape.blocks), 1, 1, static_cast<unsigned>(shape.threads), 1,
                 1, static_cast<unsigned>(shape.shared_bytes), nullptr, arguments.data(), nullptr),
         "cuLaunchKernel");
    need(synchronize_(), k.name.c_str());
    for (size_t i = 0; i < places.size(); ++i) {
      const bool last = i == buffers.size();
      uint8_t* to = last ? reinterpret_cast<uint8_t*>(status) : buffers[i].data();
      const size_t bytes = last ? sizeof(status) : buffers[i].size();
      std::vector<uint8_t> padded(bytes + kGuard);
      need(copy_out_(padded.data(), places[i], padded.size()), "cuMemcpyDtoH");
      std::memcpy(to, padded.data(), bytes);
      for (size_t g = bytes; g < padded.size(); ++g)
        EXPECT_EQ(padded[g], 0xa5) << k.name << " wrote behind buffer " << i;
      need(free_(places[i]), "cuMemFree");
    }
    return {static_cast<int>(status[0]), status[1]};
  }

  Execute execute() {
    return [this](const loop::Kernel& k, std::span<const std::span<uint8_t>> buffers) { return run(k, buffers); };
  }

 private:
  GpuCode() = default;

  static void need(int code, const char* what) { LUMEN_CHECK(code == 0, "{} fails with {}", what, code); }

  template <typename F>
  bool symbol(F& f, const char* name) {
    f = reinterpret_cast<F>(::dlsym(library_, name));
    return f != nullptr;
  }

  bool find() {
    library_ = ::dlopen("libcuda.so.1", RTLD_NOW);
    if (!library_) return false;
    int (*init)(unsigned) = nullptr;
    int (*device_get)(int*, int) = nullptr;
    int (*attribute)(int*, int, int) = nullptr;
    int (*retain)(void**, int) = nullptr;
    int (*current)(void*) = nullptr;
    if (!symbol(init, "cuInit") || !symbol(device_get, "cuDeviceGet") || !symbol(attribute, "cuDeviceGetAttribute") ||
        !symbol(retain, "cuDevicePrimaryCtxRetain") || !symbol(current, "cuCtxSetCurrent") ||
        !symbol(load_, "cuModuleLoadData") || !symbol(get_, "cuModuleGetFunction") ||
        !symbol(allocate_, "cuMemAlloc_v2") || !symbol(free_, "cuMemFree_v2") || !symbol(copy_in_, "cuMemcpyHtoD_v2") ||
        !symbol(copy_out_, "cuMemcpyDtoH_v2") || !symbol(launch_, "cuLaunchKernel") ||
        !symbol(synchronize_, "cuCtxSynchronize") || !symbol(set_, "cuFuncSetAttribute"))
      return false;
    int device = 0, major = 0, minor = 0;
    void* context = nullptr;
    if (init(0) != 0 || device_get(&device, 0) != 0 || attribute(&major, 75, device) != 0 ||
        attribute(&minor, 76, device) != 0 || retain(&context, device) != 0 || current(context) != 0)
      return false;
    const int capability = 10 * major + minor;
    const char* name = capability >= 120   ? "sm_120"
                       : capability == 100 ? "sm_100a"
                       : capability == 90  ? "sm_90a"
                       : capability >= 89  ? "sm_89"
                                           : "sm_80";
    if (capability < 80) return false;
    machine_ = machine::find_machine(name);
    return true;
  }

  void* library_ = nullptr;
  machine::MachineRef machine_;
  std::vector<void*> modules_;
  std::map<std::string, void*> functions_;
  int (*load_)(void**, const void*) = nullptr;
  int (*get_)(void**, void*, const char*) = nullptr;
  int (*allocate_)(uint64_t*, size_t) = nullptr;
  int (*free_)(uint64_t) = nullptr;
  int (*copy_in_)(uint64_t, const void*, size_t) = nullptr;
  int (*copy_out_)(void*, uint64_t, size_t) = nullptr;
  int (*launch_)(void*, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void*, void**,
                 void**) = nullptr;
  int (*synchronize_)() = nullptr;
  int (*set_)(void*, int, int) = nullptr;
};

}  // namespace lumen::test
