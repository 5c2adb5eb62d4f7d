// The functions of a GPU driver, loaded at run time: one table of pointers, filled from libcuda or from libamdhip64. No
// headers of either are used; gpu_symbols.def declares the functions. Proved by tests/run/device/gpu_test.cpp.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace lumen::run {

enum class GpuVendor : uint8_t { cuda, hip };

// Constants that differ between the two interfaces.
struct GpuNumbers {
  int attribute_units = 0;       // multiprocessors, compute units
  int attribute_pools = 0;       // stream-ordered memory
  int attribute_integrated = 0;  // shares memory with the processor
  int attribute_wave = 0;        // lanes of a wave
  void* launch_end = nullptr;    // terminates the list `extra` of a launch
  int oldest_driver = 0;
  const char* oldest_driver_text = "";
};

struct GpuSymbols {
  GpuVendor vendor = GpuVendor::cuda;
  std::string library;  // the file that was opened
  GpuNumbers numbers;
#define X(name, parameters, cuda, hip, needed) int(*name) parameters = nullptr;
#include "run/device/gpu/gpu_symbols.def"
#undef X
};

const char* vendor_name(GpuVendor vendor);  // "cuda", "hip": the user's spelling
// The library symbol of one of our names, for messages.
const char* symbol_of(GpuVendor vendor, std::string_view name);

// Opens the vendor's library, once per file and process. $LUMEN_CUDA_LIBRARY or $LUMEN_HIP_LIBRARY sets the file;
// otherwise the loader's usual search applies. Error (exit 3): no library, or one that is too old.
std::shared_ptr<const GpuSymbols> open_gpu_library(GpuVendor vendor);

}  // namespace lumen::run
