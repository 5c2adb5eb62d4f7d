// Machine code on a GPU: the driver's compiler, whose result is cached for the next start, and loaded modules. Proved
// by tests/run/device/gpu_test.cpp.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "run/device/device.h"
#include "run/device/gpu/gpu_context.h"

namespace lumen::run {

// Compiles text (PTX) to machine code for this GPU if the driver has a linker interface; other input is returned
// unchanged. Error (exit 3) with the compiler's log. Thread-safe.
std::string prepare_gpu_code(const GpuContext& context, std::string object);

std::unique_ptr<Module> load_gpu_code(const GpuContextRef& context, std::string_view object);

}  // namespace lumen::run
