// How training sees a format. y = decode(encode(x)) has the straight-through gradient: dy/dx = 1 where x lies inside the
// representable range of its block, 0 where it was clipped. Learned fields get the derivative of decode with the codes held
// constant plus, through code(), the straight-through term (LSQ).
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "number/codec.h"

namespace lumen {

// mask[i] = 1 where the gradient passes. R x C.
std::vector<float> straight_through_mask(const Format& f, std::span<const float> x, std::span<const uint8_t> blob,
                                         int64_t rows, int64_t columns);

// dL/dfield for a learned field: per record and entry, given dL/dy (R x C).
std::vector<double> field_gradient(const Format& f, int field, std::span<const float> x, std::span<const uint8_t> blob,
                                   std::span<const float> dy, int64_t rows, int64_t columns);

}  // namespace lumen
