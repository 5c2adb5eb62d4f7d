// A product of two matrices in memory, as vendor libraries compute it: result[m, n] = left . right (+ added), summed in
// f32. The synthesizer (synth/gemm/dense_product.h) describes the product as an alternative to its kernels; a device
// executes it.
#pragma once

#include <cstdint>
#include <optional>

#include "kernel/machine/machine.h"

namespace lumen::machine {

struct DenseProduct {
  int64_t m = 0, n = 0, k = 0;
  Scalar operands = Scalar::f32, result = Scalar::f32;
  std::optional<FloatCode> code = {};  // encoding of u8 operands
  bool left_transposed = false;        // stored [k, m] instead of [m, k]
  bool right_transposed = false;       // stored [n, k] instead of [k, n]
  bool scales = false;                 // the product is multiplied by two f32 numbers in memory
  bool adds = false;                   // adds an f32 matrix of the result's shape; the result is f32, too

  friend bool operator==(const DenseProduct&, const DenseProduct&) = default;
};

}  // namespace lumen::machine
