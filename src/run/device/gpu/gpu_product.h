// Products by cuBLASLt or hipBLASLt on a GPU in use. Which way a library multiplies is its first proposal for the
// shapes alone, among those that give the same bits each time. Proved by tests/run/device/gpu_product_test.cpp against
// a stand-in.
#pragma once

#include <memory>
#include <string>

#include "run/device/gpu/gpu_context.h"
#include "run/device/gpu/gpu_memory.h"
#include "run/device/gpu/product_symbols.h"
#include "run/device/product.h"

namespace lumen::run {

// The library, opened for one GPU, and scratch that products use one after another. What it finds must not outlive
// `memory`.
class GpuProducts {
 public:
  GpuProducts(GpuContextRef context, GpuMemory& memory);  // Error (exit 3): no library

  const std::string& title() const;
  // Null: the library does not know how.
  std::unique_ptr<Product> find(const machine::DenseProduct& what);

  struct Library;

 private:
  std::shared_ptr<Library> library_;  // products keep it
};

}  // namespace lumen::run
