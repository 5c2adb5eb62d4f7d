// The orientation of a picture in its EXIF data, and pictures turned by it.
#pragma once

#include <string_view>

#include "model/image/image.h"

namespace lumen::model::image {

// From 1 (upright) to 8, of the data that a JPEG, PNG or WebP file has; 1 where it has none, or none that can be read.
int exif_orientation(std::string_view file);

// The picture as its orientation means it to be seen.
Image turned(Image image, int orientation);

}  // namespace lumen::model::image
