// One function for each kind of file, called by read_image after the first bytes were found to fit.
#pragma once

#include "model/image/image.h"

namespace lumen::model::image {

// A file that is being decoded.
struct Encoded {
  std::string_view bytes;
  const std::string& name;
  const Limits& limits;

  [[noreturn]] void refuse(std::string_view why) const;  // an Error that names the file
  Image room(int64_t width, int64_t height) const;       // black, of that size; Error where the limits forbid it
};

Image read_jpeg(const Encoded& file);
Image read_png(const Encoded& file);
Image read_webp(const Encoded& file);
Image read_bmp(const Encoded& file);

}  // namespace lumen::model::image
