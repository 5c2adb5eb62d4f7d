// GPUs as devices, by the CUDA driver interface or by HIP: one driver, two tables of symbols (gpu_symbols.def). All
// work goes through one stream, so it is done in the order it was asked for. Proved by tests/run/device/gpu_test.cpp
// against a recording stand-in for either library, and by tests/run/device/gpu_smoke_test.cpp where there is a GPU.
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

// What a driver says of a GPU, and what Lumen makes of it.
struct GpuFound {
  int ordinal = 0, device = 0;     // as people count, as the driver does
  std::string name, architecture;  // architecture: "sm_90", "gfx90a:sramecc+:xnack-"
  int64_t bytes = 0;               // of memory
  int units = 0;                   // multiprocessors, compute units
  int wave = 0;                    // lanes that step together
  bool integrated = false;         // shares memory with the processor
  bool in_host_memory = false;     // its memory is a part of what the system has, as far as figures tell
  GpuMatch match;
};

struct GpuSurvey {
  GpuVendor vendor = GpuVendor::cuda;
  std::string library, driver;  // file and version, when one was opened
  std::string refusal, advice;  // why no GPU of this vendor can be used; empty otherwise
  std::vector<GpuFound> gpus;
};

// Looks, takes nothing. Never throws for what a machine lacks.
GpuSurvey survey_gpus(GpuVendor vendor);

// `machine` null: the row of the table that matches. Error (exit 3): no library, no such GPU, a driver that is too old,
// or no row.
std::unique_ptr<Device> open_gpu(GpuVendor vendor, int ordinal, machine::MachineRef machine = nullptr);

// Null: the device is no GPU.
std::shared_ptr<SharedGpu> shared_gpu(const Device& device);

}  // namespace lumen::run
