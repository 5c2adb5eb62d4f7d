// Matrix products by cuBLASLt or hipBLASLt on a GPU in use. The algorithm is the library's first proposal for the
// shapes, among the deterministic ones. Proved by tests/run/device/gpu_product_test.cpp against a mock.
#pragma once

#include <memory>
#include <string>

#include "run/device/gpu/gpu_context.h"
#include "run/device/gpu/gpu_memory.h"
#include "run/device/gpu/product_symbols.h"
#include "run/device/product.h"

namespace lumen::run {

// The library, opened for one GPU, and scratch memory that products use in turn. Products must not outlive `memory`.
class GpuProducts {
 public:
  GpuProducts(GpuContextRef context, GpuMemory& memory);  // Error (exit 3): no library

  const std::string& title() const;
  // Null: the library does not support the product.
  std::unique_ptr<Product> find(const machine::DenseProduct& what);

  struct Library;

 private:
  std::shared_ptr<Library> library_;  // shared with the products
};

}  // namespace lumen::run
