#include "model/image/image.h"

#include "base/error.h"
#include "model/image/decoders.h"
#include "model/image/exif.h"

namespace lumen::model::image {

void Encoded::refuse(std::string_view why) const {
  throw user_error("{}: {}", name, why);
}

Image Encoded::room(int64_t width, int64_t height) const {
  if (width < 1 || height < 1) refuse("the picture has no pixels");
  if (width > limits.side || height > limits.side || width * height > limits.pixels)
    throw Error(Exit::user,
                fmt::format("{}: the picture has {} x {} pixels, but at most {} are read, and {} on a side", name,
                            width, height, limits.pixels, limits.side),
                "make it smaller; models scale large pictures down anyway");
  Image out{width, height};
  out.rgb.resize(width * height * 3);
  return out;
}

Image read_image(std::string_view bytes, const std::string& name, const Limits& limits) {
  const Encoded file{bytes, name, limits};
  const auto read = [&]() -> Image {
    if (bytes.starts_with("\xff\xd8\xff")) return read_jpeg(file);
    if (bytes.starts_with("\x89PNG\r\n\x1a\n")) return read_png(file);
    if (bytes.starts_with("RIFF") && bytes.substr(0, 12).ends_with("WEBP")) return read_webp(file);
    if (bytes.starts_with("BM")) return read_bmp(file);
    throw Error(Exit::user, fmt::format("{}: this is no picture that can be read", name),
                "pictures are JPEG, PNG, WebP or BMP files");
  };
  return turned(read(), exif_orientation(bytes));
}

}  // namespace lumen::model::image
