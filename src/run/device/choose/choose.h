// Parses and opens the user's device: "cpu", "cuda", "cuda:1", "hip", "hip:0", "auto". Proved by
// tests/run/device/choose_test.cpp.
//
// May include: base, run/device, run/device/gpu.
// Offers: libraries.h.
#pragma once

#include <filesystem>
#include <memory>
#include <string>

#include "run/device/device.h"
#include "run/device/gpu/gpu_symbols.h"

namespace lumen::run {

struct DeviceChoice {
  enum class Kind : uint8_t { cpu, gpu, automatic } kind = Kind::cpu;
  GpuVendor vendor = GpuVendor::cuda;
  int ordinal = 0;
};
DeviceChoice parse_device(const std::string& text);  // Error (exit 2)

// Whether an NVIDIA or AMD driver's device node exists; it is not opened. `nodes`: the folder of device nodes.
bool has_gpu_node(const std::filesystem::path& nodes = "/dev");

// "auto" is the first GPU that code can be generated for, otherwise this processor; the choice is printed. `machine`
// null: the device's own. `threads` and `loader` are for CPUs.
std::unique_ptr<Device> open_device(const DeviceChoice& choice, machine::MachineRef machine, int threads,
                                    Loader loader);

}  // namespace lumen::run
