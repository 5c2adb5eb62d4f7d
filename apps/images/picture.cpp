#include "apps/images/picture.h"

#include <zlib.h>

#include <algorithm>
#include <cmath>

#include "apps/images/images.h"
#include "base/check.h"
#include "base/error.h"
#include "base/structured/base64.h"

namespace lumen::apps {
namespace {

constexpr int64_t kLine = 2;  // pixels between images
constexpr uint8_t kLineShade = 96;

// A chunk of a PNG file (W3C PNG, section 5.3): length, kind, data, and a checksum of the last two.
void append_chunk(std::string& out, const std::string& kind, const std::string& data) {
  append_word(out, data.size());
  const std::string body = kind + data;
  out += body;
  append_word(out, crc32(0, reinterpret_cast<const Bytef*>(body.data()), body.size()));
}

}  // namespace

std::string picture_of(std::span<const float> images, int64_t size, int64_t channels, int64_t columns) {
  const int64_t each = size * size * channels, count = std::ssize(images) / each;
  LUMEN_CHECK((channels == 1 || channels == 3) && count >= 1 && count * each == std::ssize(images));
  columns = std::clamp<int64_t>(columns, 1, count);
  const int64_t rows = (count + columns - 1) / columns;
  const int64_t width = columns * (size + kLine) - kLine, height = rows * (size + kLine) - kLine;
  const int64_t line = 1 + width * channels;  // a filter's number stands before each line: none
  std::string pixels(height * line, char(kLineShade));
  for (int64_t y = 0; y < height; ++y) pixels[y * line] = 0;
  for (int64_t i = 0; i < count; ++i) {
    const int64_t left = i % columns * (size + kLine), top = i / columns * (size + kLine);
    for (int64_t y = 0; y < size; ++y)
      for (int64_t x = 0; x < size * channels; ++x) {
        const double shade = (images[i * each + y * size * channels + x] + 1) * 127.5;
        pixels[(top + y) * line + 1 + left * channels + x] = char(std::lround(std::clamp(shade, 0.0, 255.0)));
      }
  }
  uLongf packed = compressBound(pixels.size());
  std::string data(packed, 0);
  if (compress2(reinterpret_cast<Bytef*>(data.data()), &packed, reinterpret_cast<const Bytef*>(pixels.data()),
                pixels.size(), Z_BEST_COMPRESSION) != Z_OK)
    throw user_error("a picture of {} x {} could not be packed", width, height);
  data.resize(packed);
  std::string head;
  append_word(head, width);
  append_word(head, height);
  head += {8, char(channels == 1 ? 0 : 2), 0, 0, 0};  // 8 bits, gray or RGB; deflate, no filter, not interlaced
  std::string out = "\x89PNG\r\n\x1a\n";
  append_chunk(out, "IHDR", head);
  append_chunk(out, "IDAT", data);
  append_chunk(out, "IEND", "");
  return out;
}

std::string picture_uri(const std::string& png) {
  return "data:image/png;base64," + encode_base64(png);
}

}  // namespace lumen::apps
