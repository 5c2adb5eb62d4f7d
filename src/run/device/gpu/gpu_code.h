// Machine code on a GPU: the driver's own compiler, whose result is kept for the next start, and loaded modules.
// Proved by tests/run/device/gpu_test.cpp.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "run/device/device.h"
#include "run/device/gpu/gpu_context.h"

namespace lumen::run {

// Text for the driver's compiler becomes the very GPU's machine code where the driver has that door; everything else
// passes. Error (exit 3) with the compiler's log. Threads may call it at once.
std::string prepare_gpu_code(const GpuContext& context, std::string object);

std::unique_ptr<Module> load_gpu_code(const GpuContextRef& context, std::string_view object);

}  // namespace lumen::run
