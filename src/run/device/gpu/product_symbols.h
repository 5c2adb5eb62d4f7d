// The functions of a vendor's matrix product library, loaded at run time like a driver (gpu_symbols.h): one table of
// pointers, filled from libcublasLt or from libhipblaslt. No headers of either are used.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "run/device/gpu/gpu_symbols.h"

namespace lumen::run {

// Constants and layouts that differ between the two libraries.
struct ProductNumbers {
  int compute_f32 = 0;
  int as_it_is = 0, transposed = 0;                  // operations
  int work_scales_a = 0, work_scales_b = 0;          // descriptor attributes: addresses of one f32,
  int work_transposes_a = 0, work_transposes_b = 0;  // and operations
  int wish_scratch = 0, wish_sums = -1;              // preference attributes; -1: not available
  size_t found_bytes = 0, found_scratch = 0;         // of a result: its size, offset of its scratch size,
  size_t found_error = 0;                            // and of its error
};

struct ProductSymbols {
  std::string title;    // "cuBLASLt 13.0.2", for the user
  std::string library;  // the file that was opened
  ProductNumbers numbers;
#define X(name, parameters, cuda, hip) int(*name) parameters = nullptr;
#include "run/device/gpu/product_symbols.def"
#undef X
};

// The library symbol of one of our names, for messages.
const char* product_symbol(GpuVendor vendor, std::string_view name);

// Opens the vendor's library, once per file and process. $LUMEN_CUBLASLT_LIBRARY or $LUMEN_HIPBLASLT_LIBRARY sets the
// file; otherwise the loader's usual search applies. Error (exit 3): no library, or one without these functions.
std::shared_ptr<const ProductSymbols> open_product_library(GpuVendor vendor);

}  // namespace lumen::run
