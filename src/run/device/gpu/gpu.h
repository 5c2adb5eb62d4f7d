// GPUs as devices, through the CUDA driver API or HIP: one implementation, two tables of symbols (gpu_symbols.def). All
// work goes through one stream, so it is executed in submission order. Proved by tests/run/device/gpu_test.cpp against
// a recording mock of either library, and by tests/run/device/gpu_smoke_test.cpp on a real GPU.
//
// May include: base, kernel/machine, run/device.
// Offers: product_symbols.h.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "run/device/device.h"
#include "run/device/gpu/gpu_context.h"
#include "run/device/gpu/gpu_match.h"
#include "run/device/gpu/gpu_symbols.h"

namespace lumen::run {

// A GPU's properties as reported by its driver, and the matching machine.
struct GpuFound {
  int ordinal = 0, device = 0;     // the user's number, the driver's number
  std::string name, architecture;  // architecture: "sm_90", "gfx90a:sramecc+:xnack-"
  int64_t bytes = 0;               // memory size
  int units = 0;                   // multiprocessors, compute units
  int wave = 0;                    // lanes of a wave
  bool integrated = false;         // shares memory with the processor
  bool in_host_memory = false;     // its memory is part of the system's, as far as the reported sizes show
  GpuMatch match;
};

struct GpuSurvey {
  GpuVendor vendor = GpuVendor::cuda;
  std::string library, driver;  // file and version, when one was opened
  std::string refusal, advice;  // reason why no GPU of this vendor is usable; empty otherwise
  std::vector<GpuFound> gpus;
};

// Queries without creating contexts. Never throws for missing hardware or libraries.
GpuSurvey survey_gpus(GpuVendor vendor);

// `machine` null: the matching row of the table. Error (exit 3): no library, no such GPU, a driver that is too old, or
// no row.
std::unique_ptr<Device> open_gpu(GpuVendor vendor, int ordinal, machine::MachineRef machine = nullptr);

// Null if the device is not a GPU.
std::shared_ptr<SharedGpu> shared_gpu(const Device& device);

}  // namespace lumen::run
