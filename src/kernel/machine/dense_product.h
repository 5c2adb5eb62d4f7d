// A product of two matrices in memory, as libraries of vendors compute it: result[m, n] = left . right (+ added),
// summed in f32. A way to do what kernels do; what it is asked for comes from the synthesizer
// (synth/gemm/dense_product.h), who does it from a device.
#pragma once

#include <cstdint>
#include <optional>

#include "kernel/machine/machine.h"

namespace lumen::machine {

struct DenseProduct {
  int64_t m = 0, n = 0, k = 0;
  Scalar operands = Scalar::f32, result = Scalar::f32;
  std::optional<FloatCode> code = {};  // operands of u8: the numbers that they spell
  bool left_transposed = false;        // stored [k, m] instead of [m, k]
  bool right_transposed = false;       // stored [n, k] instead of [k, n]
  bool scales = false;                 // two f32 numbers in memory, which the product is multiplied by
  bool adds = false;                   // an f32 matrix of the result's shape; the result is f32, too

  friend bool operator==(const DenseProduct&, const DenseProduct&) = default;
};

}  // namespace lumen::machine
