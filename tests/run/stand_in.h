// A GPU driver's stand-in for tests: opens the library, names it in the environment, lets kernels of the host run in
// it, and at the end finds that everything taken was given back.
#pragma once

#include <dlfcn.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/check.h"
#include "emit/emit.h"
#include "fake_gpu/fake_gpu.h"
#include "run/device/cpu/threads.h"
#include "run/device/gpu/gpu_symbols.h"

namespace lumen::run {

class StandIn {
 public:
  explicit StandIn(GpuVendor vendor) : vendor_(vendor) {
    const std::string path = std::string(LUMEN_BINARY_DIR) + "/tests/libfake_" + vendor_name(vendor) + ".so";
    library_ = ::dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
    LUMEN_CHECK(library_, "{}", ::dlerror());
    gpu_ = reinterpret_cast<fake::Gpu* (*)()>(::dlsym(library_, "fake_gpu"))();
    reset();
    for (const char* name : variables()) ::setenv(name, path.c_str(), 1);
  }
  ~StandIn() {
    EXPECT_EQ(gpu_->held(), 0) << "contexts " << gpu_->contexts << " streams " << gpu_->streams << " events "
                               << gpu_->events << " modules " << gpu_->modules << " graphs " << gpu_->graphs
                               << " executables " << gpu_->executables << " links " << gpu_->links_open
                               << " descriptors " << gpu_->descriptors << " host blocks " << gpu_->host_blocks
                               << " device blocks " << gpu_->device_blocks;
    reset();
    for (const char* name : variables()) ::unsetenv(name);
  }
  StandIn(const StandIn&) = delete;
  StandIn& operator=(const StandIn&) = delete;

  fake::Gpu* operator->() { return gpu_; }
  std::string device() const { return vendor_name(vendor_); }  // as people type it

  // Kernels are these functions of the host, a task per block.
  std::map<std::string, KernelFunction> kernels;
  void run_kernels() {
    gpu_->find = [this](const std::string&, const std::string& symbol) {
      return kernels.contains(symbol) ? reinterpret_cast<void*>(kernels.at(symbol)) : nullptr;
    };
    gpu_->execute = execute;
  }
  // Modules are object files for this processor, as the engine makes them when it is told so.
  void run_machine_code() {
    gpu_->find = [this](const std::string& image, const std::string& symbol) {
      modules_.push_back(std::make_unique<emit::LoadedModule>(
          std::span(reinterpret_cast<const uint8_t*>(image.data()), image.size())));
      return reinterpret_cast<void*>(modules_.back()->find(symbol));
    };
    gpu_->execute = execute;
  }

 private:
  // Of the driver, and of the library for products.
  std::vector<const char*> variables() const {
    if (vendor_ == GpuVendor::cuda) return {"LUMEN_CUDA_LIBRARY", "LUMEN_CUBLASLT_LIBRARY"};
    return {"LUMEN_HIP_LIBRARY", "LUMEN_HIPBLASLT_LIBRARY"};
  }
  void reset() { reinterpret_cast<void (*)()>(::dlsym(library_, "fake_gpu_reset"))(); }
  static void execute(void* function, std::span<void* const> arguments, unsigned blocks, unsigned) {
    reinterpret_cast<KernelFunction>(function)(arguments.data(), 0, blocks, static_cast<int64_t*>(arguments.back()));
  }

  GpuVendor vendor_;
  void* library_ = nullptr;
  fake::Gpu* gpu_ = nullptr;
  std::vector<std::unique_ptr<emit::LoadedModule>> modules_;
};

}  // namespace lumen::run
