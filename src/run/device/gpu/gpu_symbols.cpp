// See gpu_symbols.h. A library is never closed: drivers keep threads that would crash.
#include "run/device/gpu/gpu_symbols.h"

#include <dlfcn.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <map>
#include <mutex>

#include "base/error.h"
#include "run/device/shared_library.h"

namespace lumen::run {
namespace {

struct Spelling {
  const char* variable;
  std::vector<const char*> files;  // in the order of attempts
  const char* advice;
  GpuNumbers numbers;
};

// Numbers are those of the public interfaces (CUDA driver API 12 and 13, HIP 6 and 7).
const Spelling& spelling(GpuVendor vendor) {
  static const Spelling cuda = {
      "LUMEN_CUDA_LIBRARY",
      {"libcuda.so.1", "/usr/lib/wsl/lib/libcuda.so.1"},
      "install the NVIDIA driver (it brings libcuda.so.1), or name the file in LUMEN_CUDA_LIBRARY",
      {16, 115, 18, 10, nullptr, 12000, "CUDA 12.0 (driver 525)"}};
  static const Spelling hip = {
      "LUMEN_HIP_LIBRARY",
      // The last ones are too old; the error about that is more useful than the other files' absence.
      {"libamdhip64.so.7", "libamdhip64.so.6", "/opt/rocm/lib/libamdhip64.so.7", "/opt/rocm/lib/libamdhip64.so.6",
       "libamdhip64.so.5", "/opt/rocm/lib/libamdhip64.so.5"},
      "install ROCm 6 or newer (its package hip-runtime-amd), or name libamdhip64.so in LUMEN_HIP_LIBRARY",
      {63, 88, 16, 87, reinterpret_cast<void*>(3), 60000000, "ROCm 6.0"}};
  return vendor == GpuVendor::cuda ? cuda : hip;
}

enum class Needed : uint8_t { both, one, may };

struct Symbol {
  const char* name;
  const char* symbol[2];  // by vendor
  Needed needed;
};

const std::vector<Symbol>& table() {
  static const std::vector<Symbol> symbols = {
#define X(name, parameters, cuda, hip, needed) {#name, {cuda, hip}, Needed::needed},
#include "run/device/gpu/gpu_symbols.def"
#undef X
  };
  return symbols;
}

std::shared_ptr<const GpuSymbols> fill(GpuVendor vendor, const SharedLibrary& opened) {
  auto out = std::make_shared<GpuSymbols>();
  out->vendor = vendor;
  out->library = opened.file;
  out->numbers = spelling(vendor).numbers;
  std::vector<std::string> missing;
  const auto find = [&](const char* symbol, Needed needed) -> void* {
    if (*symbol == 0) return nullptr;
    void* found = ::dlsym(opened.handle, symbol);
    if (!found && needed != Needed::may) missing.emplace_back(symbol);
    return found;
  };
  const auto v = static_cast<size_t>(vendor);
  size_t i = 0;
#define X(name, parameters, cuda, hip, need)                                                        \
  out->name = reinterpret_cast<decltype(out->name)>(find(table()[i].symbol[v], table()[i].needed)); \
  ++i;
#include "run/device/gpu/gpu_symbols.def"
#undef X
  if (!missing.empty())
    throw Error(Exit::hardware, fmt::format("{} is too old: it lacks {}", opened.file, fmt::join(missing, ", ")),
                fmt::format("Lumen needs {} or newer", out->numbers.oldest_driver_text));
  if (std::string file = file_of(reinterpret_cast<void*>(out->init)); !file.empty()) out->library = std::move(file);
  return out;
}

}  // namespace

const char* vendor_name(GpuVendor vendor) {
  return vendor == GpuVendor::cuda ? "cuda" : "hip";
}

const char* symbol_of(GpuVendor vendor, std::string_view name) {
  for (const Symbol& s : table())
    if (name == s.name) return s.symbol[static_cast<size_t>(vendor)];
  return "";
}

std::shared_ptr<const GpuSymbols> open_gpu_library(GpuVendor vendor) {
  static std::mutex mutex;
  static std::map<void*, std::shared_ptr<const GpuSymbols>> known;  // by the loader's handle
  const std::scoped_lock lock(mutex);
  const Spelling& s = spelling(vendor);
  const SharedLibrary opened =
      open_shared_library(s.variable, s.files, RTLD_NOW, fmt::format("{} driver", vendor_name(vendor)), s.advice);
  auto& symbols = known[opened.handle];
  if (!symbols) symbols = fill(vendor, opened);
  return symbols;
}

}  // namespace lumen::run
