// Pictures in files: JPEG, PNG, WebP and BMP, as rows of RGB bytes. Sizes are checked before memory is taken, and a
// picture is turned as its EXIF orientation says. Proved by tests/model/image/image_test.cpp and
// tests/fuzz/files/picture_fuzz.cpp.
//
// May include: base.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace lumen::model::image {

struct Image {
  int64_t width = 0, height = 0;
  std::vector<uint8_t> rgb = {};  // rows from the top, each of `width` pixels
};

struct Limits {
  int64_t pixels = int64_t{1} << 26;  // width times height
  int64_t side = int64_t{1} << 16;
};

// Decodes a file's bytes; its kind is found by its first bytes. Transparency is dropped: colours stay as they are
// stored. Error, which begins with `name`, for other kinds, damaged files, and pictures over the limits.
Image read_image(std::string_view bytes, const std::string& name, const Limits& limits = {});

}  // namespace lumen::model::image
