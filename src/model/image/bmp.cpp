// Windows bitmaps without compression: 1, 4 and 8 bits with a palette; 16, 24 and 32 bits, also with masks of their
// own.
#include <array>
#include <bit>
#include <cstdlib>

#include "model/image/decoders.h"

namespace lumen::model::image {
namespace {

constexpr int64_t kFileHead = 14, kCoreHead = 12, kInfoHead = 40;
constexpr uint32_t kPlain = 0, kMasks = 3, kMasksWithAlpha = 6;

struct Bitmap {
  const Encoded& file;
  int64_t begin = 0, width = 0, height = 0, bits = 0;
  bool is_from_top = false;
  std::vector<std::array<uint8_t, 3>> palette = {};
  std::array<uint32_t, 3> masks = {};

  uint32_t number(int64_t at, int64_t count) const {
    if (at < 0 || at > std::ssize(file.bytes) - count) file.refuse("the BMP data ends early");
    uint32_t value = 0;
    for (int64_t i = 0; i < count; ++i) value |= uint32_t{uint8_t(file.bytes[at + i])} << (8 * i);
    return value;
  }
  void read_head();
  void read_palette(int64_t at, int64_t count, int64_t each);
  std::array<uint8_t, 3> pixel(int64_t row_at, int64_t x) const;
};

void Bitmap::read_head() {
  begin = number(10, 4);
  const int64_t head = number(kFileHead, 4);
  const bool is_core = head == kCoreHead;
  if (!is_core && head < kInfoHead) file.refuse("the BMP data has an unknown head");
  const int64_t side = is_core ? 2 : 4, sizes = kFileHead + 4;
  width = is_core ? int64_t{number(sizes, side)} : int64_t{std::bit_cast<int32_t>(number(sizes, side))};
  height = is_core ? int64_t{number(sizes + side, side)} : int64_t{std::bit_cast<int32_t>(number(sizes + side, side))};
  is_from_top = height < 0;
  height = std::abs(height);
  bits = number(sizes + 2 * side + 2, 2);
  const uint32_t method = is_core ? kPlain : number(kFileHead + 16, 4);
  if (method != kPlain && method != kMasks && method != kMasksWithAlpha)
    file.refuse("this BMP file is compressed, which is not supported");
  if (bits != 1 && bits != 4 && bits != 8 && bits != 16 && bits != 24 && bits != 32)
    file.refuse("the BMP data has an unknown number of bits for a pixel");
  if (method != kPlain && bits != 16 && bits != 32)
    file.refuse("the BMP data has masks, but no numbers that need them");
  if (bits == 16) masks = {0x7c00, 0x3e0, 0x1f};
  if (bits == 32) masks = {0xff0000, 0xff00, 0xff};
  if (method != kPlain)
    for (int64_t c = 0; c < 3; ++c) masks[c] = number(kFileHead + kInfoHead + 4 * c, 4);
  if (bits > 8) return;
  const int64_t named = is_core ? 0 : int64_t{number(kFileHead + 32, 4)}, most = int64_t{1} << bits;
  if (named > most) file.refuse("the BMP data has more colours than its bits can name");
  read_palette(kFileHead + head, named > 0 ? named : most, is_core ? 3 : 4);
}

void Bitmap::read_palette(int64_t at, int64_t count, int64_t each) {
  for (int64_t i = 0; i < count; ++i) {
    const uint32_t bgr = number(at + i * each, 3);
    palette.push_back({uint8_t(bgr >> 16), uint8_t(bgr >> 8), uint8_t(bgr)});
  }
}

std::array<uint8_t, 3> Bitmap::pixel(int64_t row_at, int64_t x) const {
  if (bits <= 8) {
    const int64_t bit = x * bits;
    const uint32_t byte = uint8_t(file.bytes[row_at + bit / 8]);
    const uint32_t index = byte >> (8 - bits - bit % 8) & ((1U << bits) - 1);
    if (index >= palette.size()) file.refuse("the BMP data names a colour that it does not have");
    return palette[index];
  }
  if (bits == 24) {
    const uint32_t bgr = number(row_at + 3 * x, 3);
    return {uint8_t(bgr >> 16), uint8_t(bgr >> 8), uint8_t(bgr)};
  }
  const uint32_t value = number(row_at + bits / 8 * x, bits / 8);
  std::array<uint8_t, 3> out = {};
  for (size_t c = 0; c < 3; ++c) {
    if (masks[c] == 0) continue;
    const int low = std::countr_zero(masks[c]);
    const uint64_t most = masks[c] >> low, part = (value & masks[c]) >> low;
    out[c] = uint8_t(part * 255 / most);
  }
  return out;
}

}  // namespace

Image read_bmp(const Encoded& file) {
  Bitmap map{file};
  map.read_head();
  const int64_t stride = (map.width * map.bits + 31) / 32 * 4;
  Image out = file.room(map.width, map.height);
  if (map.begin > std::ssize(file.bytes) || (std::ssize(file.bytes) - map.begin) / stride < map.height)
    file.refuse("the BMP data ends early");
  for (int64_t y = 0; y < map.height; ++y) {
    const int64_t row_at = map.begin + (map.is_from_top ? y : map.height - 1 - y) * stride;
    for (int64_t x = 0; x < map.width; ++x) {
      const std::array<uint8_t, 3> rgb = map.pixel(row_at, x);
      std::copy(rgb.begin(), rgb.end(), out.rgb.begin() + (y * map.width + x) * 3);
    }
  }
  return out;
}

}  // namespace lumen::model::image
