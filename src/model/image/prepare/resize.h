// Pictures in another size. Where a picture shrinks, the filter is as wide as what becomes one pixel (antialiasing).
// The arithmetic is that of torchvision for bytes on x86: weights in 16 bits, first along rows, then along columns.
#pragma once

#include "model/image/image.h"

namespace lumen::model::image {

enum class Filter : uint8_t { bilinear, bicubic };

Image resized(const Image& image, int64_t width, int64_t height, Filter filter);

}  // namespace lumen::model::image
