#include "model/image/exif.h"

#include <array>
#include <optional>

namespace lumen::model::image {
namespace {

// Whole numbers in a file, of either byte order; nothing is read past the end.
struct Numbers {
  std::string_view bytes;
  bool is_big = true;

  std::optional<uint32_t> at(size_t place, size_t count) const {
    if (place > bytes.size() || bytes.size() - place < count) return std::nullopt;
    uint32_t value = 0;
    for (size_t i = 0; i < count; ++i) {
      const uint32_t byte = uint8_t(bytes[place + (is_big ? i : count - 1 - i)]);
      value = value << 8 | byte;
    }
    return value;
  }
};

constexpr std::string_view kExif("Exif\0\0", 6);
constexpr uint32_t kOrientation = 0x0112, kShort = 3;

// The tag in the first directory of TIFF data.
int orientation_of(std::string_view tiff) {
  Numbers n{tiff};
  if (tiff.starts_with("II"))
    n.is_big = false;
  else if (!tiff.starts_with("MM"))
    return 1;
  if (n.at(2, 2) != 42) return 1;
  const auto directory = n.at(4, 4);
  const auto count = directory ? n.at(*directory, 2) : std::nullopt;
  for (size_t i = 0; count && i < *count; ++i) {
    const size_t entry = size_t{*directory} + 2 + 12 * i;
    const auto tag = n.at(entry, 2);
    if (!tag) return 1;
    if (*tag != kOrientation) continue;
    const auto value = n.at(entry + 8, 2);
    return n.at(entry + 2, 2) == kShort && value && *value >= 1 && *value <= 8 ? int(*value) : 1;
  }
  return 1;
}

// Segments of a JPEG file up to its data.
std::string_view in_jpeg(std::string_view file) {
  const Numbers n{file};
  for (size_t at = 2;;) {
    const auto marker = n.at(at, 2), length = n.at(at + 2, 2);
    if (!marker || !length || *marker >> 8 != 0xff || *length < 2 || *marker == 0xffda) return {};
    const std::string_view data = file.substr(at + 4, *length - 2);
    if (*marker == 0xffe1 && data.starts_with(kExif)) return data.substr(kExif.size());
    at += 2 + *length;
  }
}

// Chunks of a PNG file: a length, a name, data, and a checksum.
std::string_view in_png(std::string_view file) {
  const Numbers n{file};
  for (size_t at = 8;;) {
    const auto length = n.at(at, 4), name = n.at(at + 4, 4);
    if (!length || !name) return {};
    if (file.substr(at + 4, 4) == "eXIf") return file.substr(at + 8, *length);
    at += size_t{12} + *length;
  }
}

// Chunks of a RIFF file: a name, a length, and data of an even length.
std::string_view in_webp(std::string_view file) {
  const Numbers n{file, false};
  for (size_t at = 12;;) {
    const auto length = n.at(at + 4, 4);
    if (!length) return {};
    if (file.substr(at, 4) == "EXIF") {
      std::string_view data = file.substr(at + 8, *length);
      if (data.starts_with(kExif)) data.remove_prefix(kExif.size());
      return data;
    }
    at += size_t{8} + *length + *length % 2;
  }
}

}  // namespace

int exif_orientation(std::string_view file) {
  if (file.starts_with("\xff\xd8")) return orientation_of(in_jpeg(file));
  if (file.starts_with("\x89PNG")) return orientation_of(in_png(file));
  if (file.starts_with("RIFF")) return orientation_of(in_webp(file));
  return 1;
}

Image turned(Image image, int orientation) {
  if (orientation < 2 || orientation > 8) return image;
  const bool is_swapped = orientation >= 5;  // rows become columns
  Image out;
  out.width = is_swapped ? image.height : image.width;
  out.height = is_swapped ? image.width : image.height;
  out.rgb.resize(image.rgb.size());
  // Whether columns and rows run backwards in the stored picture.
  constexpr std::array<bool, 9> kBack = {false, false, true, true, false, false, false, true, true},
                                kUp = {false, false, false, true, true, false, true, true, false};
  for (int64_t y = 0; y < out.height; ++y) {
    for (int64_t x = 0; x < out.width; ++x) {
      int64_t column = is_swapped ? y : x, row = is_swapped ? x : y;
      if (kBack[orientation]) column = image.width - 1 - column;
      if (kUp[orientation]) row = image.height - 1 - row;
      for (int64_t c = 0; c < 3; ++c)
        out.rgb[(y * out.width + x) * 3 + c] = image.rgb[(row * image.width + column) * 3 + c];
    }
  }
  return out;
}

}  // namespace lumen::model::image
