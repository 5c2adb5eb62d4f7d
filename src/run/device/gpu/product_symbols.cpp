// See product_symbols.h. Numbers are those of the public interfaces (cuBLASLt 12 and 13, hipBLASLt of ROCm 6 and 7).
#include "run/device/gpu/product_symbols.h"

#include <dlfcn.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <map>
#include <mutex>
#include <vector>

#include "base/error.h"
#include "run/device/shared_library.h"

namespace lumen::run {
namespace {

struct Spelling {
  const char *name, *variable;
  std::vector<const char*> files;  // in the order of attempts
  const char* advice;
  ProductNumbers numbers;
};

const Spelling& spelling(GpuVendor vendor) {
  static const Spelling cuda = {
      "cuBLASLt",
      "LUMEN_CUBLASLT_LIBRARY",
      {"libcublasLt.so.13", "libcublasLt.so.12", "/usr/local/cuda/lib64/libcublasLt.so.13",
       "/usr/local/cuda/lib64/libcublasLt.so.12"},
      "install NVIDIA's libcublas, or name the file libcublasLt.so.13 (or 12) in LUMEN_CUBLASLT_LIBRARY",
      {.compute_f32 = 68,
       .as_it_is = 0,
       .transposed = 1,
       .work_scales_a = 17,
       .work_scales_b = 18,
       .work_transposes_a = 3,
       .work_transposes_b = 4,
       .wish_scratch = 1,
       .wish_sums = 3,
       .found_bytes = 96,
       .found_scratch = 64,
       .found_error = 72}};
  static const Spelling hip = {
      "hipBLASLt",
      "LUMEN_HIPBLASLT_LIBRARY",
      {"libhipblaslt.so.1", "libhipblaslt.so.0", "/opt/rocm/lib/libhipblaslt.so.1", "/opt/rocm/lib/libhipblaslt.so.0"},
      "install AMD's hipblaslt, or name the file libhipblaslt.so in LUMEN_HIPBLASLT_LIBRARY",
      {.compute_f32 = 2,
       .as_it_is = 111,
       .transposed = 112,
       .work_scales_a = 5,
       .work_scales_b = 6,
       .work_transposes_a = 0,
       .work_transposes_b = 1,
       .wish_scratch = 1,
       .wish_sums = -1,
       .found_bytes = 56,
       .found_scratch = 24,
       .found_error = 32}};
  return vendor == GpuVendor::cuda ? cuda : hip;
}

struct Symbol {
  const char* name;
  const char* symbol[2];  // by vendor
};

const std::vector<Symbol>& table() {
  static const std::vector<Symbol> symbols = {
#define X(name, parameters, cuda, hip) {#name, {cuda, hip}},
#include "run/device/gpu/product_symbols.def"
#undef X
  };
  return symbols;
}

// cuBLASLt reports its version without a handle; for hipBLASLt it is taken from the file's name.
std::string version_of(GpuVendor vendor, void* handle) {
  void* get = vendor == GpuVendor::cuda ? ::dlsym(handle, "cublasLtGetVersion") : nullptr;
  if (!get) return {};
  const size_t v = reinterpret_cast<size_t (*)()>(get)();
  return fmt::format(" {}.{}.{}", v / 10000, v / 100 % 100, v % 100);
}

std::shared_ptr<const ProductSymbols> fill(GpuVendor vendor, const SharedLibrary& opened) {
  const Spelling& s = spelling(vendor);
  auto out = std::make_shared<ProductSymbols>();
  out->numbers = s.numbers;
  std::vector<std::string> missing;
  const auto find = [&](const char* symbol) {
    void* found = ::dlsym(opened.handle, symbol);
    if (!found) missing.emplace_back(symbol);
    return found;
  };
  const auto v = static_cast<size_t>(vendor);
  size_t i = 0;
#define X(name, parameters, cuda, hip) out->name = reinterpret_cast<decltype(out->name)>(find(table()[i++].symbol[v]));
#include "run/device/gpu/product_symbols.def"
#undef X
  if (!missing.empty())
    throw Error(Exit::hardware, fmt::format("{} is no {}: it lacks {}", opened.file, s.name, fmt::join(missing, ", ")),
                s.advice);
  out->library = file_of(reinterpret_cast<void*>(out->create));
  if (out->library.empty()) out->library = opened.file;
  out->title = s.name + version_of(vendor, opened.handle);
  return out;
}

}  // namespace

const char* product_symbol(GpuVendor vendor, std::string_view name) {
  for (const Symbol& s : table())
    if (name == s.name) return s.symbol[static_cast<size_t>(vendor)];
  return "";
}

std::shared_ptr<const ProductSymbols> open_product_library(GpuVendor vendor) {
  static std::mutex mutex;
  static std::map<void*, std::shared_ptr<const ProductSymbols>> known;  // by the loader's handle
  const std::scoped_lock lock(mutex);
  const Spelling& s = spelling(vendor);
  const SharedLibrary opened = open_shared_library(s.variable, s.files, RTLD_LAZY, s.name, s.advice);
  auto& symbols = known[opened.handle];
  if (!symbols) symbols = fill(vendor, opened);
  return symbols;
}

}  // namespace lumen::run
