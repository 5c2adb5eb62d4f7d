// A product of two matrices by the vendor's library.
#pragma once

#include <span>
#include <string>

#include "kernel/machine/dense_product.h"

namespace lumen::run {

class Product {
 public:
  virtual ~Product() = default;
  // Device addresses: left, right, the scales and the addend if any, result. Asynchronous, in the order of launches.
  virtual void multiply(std::span<void* const> buffers) = 0;
};

}  // namespace lumen::run
