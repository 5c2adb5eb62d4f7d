#include "run/device/choose/libraries.h"

#include <fmt/format.h>

#include "base/error.h"
#include "run/device/gpu/product_symbols.h"
#include "run/device/shared_library.h"

namespace lumen::run {
namespace {

LibraryFound products(GpuVendor vendor, const char* name) {
  LibraryFound found{name, "", "", "not used: Lumen's own kernels do everything"};
  try {
    const auto symbols = open_product_library(vendor);
    found.file = symbols->library;
    if (const size_t space = symbols->title.find(' '); space != std::string::npos)
      found.version = symbols->title.substr(space + 1);
    found.remark = "multiplies where --libraries allows it and it is faster";
  } catch (const Error&) {
  }
  return found;
}

}  // namespace

std::vector<LibraryFound> look_for_libraries() {
  return {products(GpuVendor::cuda, "cuBLASLt"), products(GpuVendor::hip, "hipBLASLt")};
}

}  // namespace lumen::run
