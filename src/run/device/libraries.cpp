#include "run/device/libraries.h"

#include <dlfcn.h>
#include <fmt/format.h>
#include <omp.h>

#include <cstddef>

namespace lumen::run {
namespace {

std::string file_of(void* address) {
  Dl_info where{};
  return ::dladdr(address, &where) != 0 && where.dli_fname ? where.dli_fname : "";
}

// The first of the files the loader finds.
void* open_first(std::initializer_list<const char*> files) {
  for (const char* file : files)
    if (void* handle = ::dlopen(file, RTLD_LAZY | RTLD_LOCAL)) return handle;
  return nullptr;
}

LibraryFound open_mp() {
  return {"OpenMP", file_of(reinterpret_cast<void*>(&omp_get_max_threads)), fmt::format("{}", _OPENMP),
          "compiles kernels in parallel"};
}

LibraryFound cublas() {
  LibraryFound found{"cuBLASLt", "", "", "not used: Lumen's own kernels do everything"};
  void* handle = open_first({"libcublasLt.so.13", "libcublasLt.so.12"});
  if (!handle) return found;
  if (void* version = ::dlsym(handle, "cublasLtGetVersion")) {
    found.file = file_of(version);
    const size_t v = reinterpret_cast<size_t (*)()>(version)();
    found.version = fmt::format("{}.{}.{}", v / 10000, v / 100 % 100, v % 100);
  }
  ::dlclose(handle);
  return found;
}

LibraryFound hipblas() {
  LibraryFound found{"hipBLASLt", "", "", "not used: Lumen's own kernels do everything"};
  void* handle = open_first({"libhipblaslt.so.1", "libhipblaslt.so.0"});
  if (!handle) return found;
  if (void* create = ::dlsym(handle, "hipblasLtCreate")) found.file = file_of(create);
  ::dlclose(handle);
  return found;
}

}  // namespace

std::vector<LibraryFound> look_for_libraries() {
  return {open_mp(), cublas(), hipblas()};
}

}  // namespace lumen::run
