// The functions of a vendor's library for products of matrices, opened at run time as a driver is (gpu_symbols.h): one
// table of pointers, filled from libcublasLt or from libhipblaslt. No header of either is used.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "run/device/gpu/gpu_symbols.h"

namespace lumen::run {

// Where the two libraries number the same thing differently, or lay it out.
struct ProductNumbers {
  int compute_f32 = 0;
  int as_it_is = 0, transposed = 0;                  // operations
  int work_scales_a = 0, work_scales_b = 0;          // attributes of a work: addresses of one f32,
  int work_transposes_a = 0, work_transposes_b = 0;  // and operations
  int wish_scratch = 0, wish_sums = -1;              // attributes of wishes; -1: has none
  size_t found_bytes = 0, found_scratch = 0;         // of an answer: its size, where its scratch stands,
  size_t found_error = 0;                            // and where its error does
};

struct ProductSymbols {
  std::string title;    // "cuBLASLt 13.0.2", as people know it
  std::string library;  // the file that was opened
  ProductNumbers numbers;
#define X(name, parameters, cuda, hip) int(*name) parameters = nullptr;
#include "run/device/gpu/product_symbols.def"
#undef X
};

// The symbol behind one of our names, for messages.
const char* product_symbol(GpuVendor vendor, std::string_view name);

// Opens the vendor's library, once per file and process. $LUMEN_CUBLASLT_LIBRARY or $LUMEN_HIPBLASLT_LIBRARY names the
// file; without it the loader's usual search finds it. Error (exit 3): no library, or one without these functions.
std::shared_ptr<const ProductSymbols> open_product_library(GpuVendor vendor);

}  // namespace lumen::run
