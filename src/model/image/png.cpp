// As in jpeg.cpp, the functions that an error may leave by longjmp have no C++ objects.
#include <png.h>

#include <csetjmp>
#include <cstring>
#include <memory>

#include "model/image/decoders.h"

namespace lumen::model::image {
namespace {

constexpr size_t kMostChunk = size_t{8} << 20;  // bytes of a chunk in memory

struct Decoder {
  png_structp png = nullptr;
  png_infop info = nullptr;
  const char* bytes = nullptr;
  size_t left = 0;
  char text[200] = {};

  ~Decoder() { png_destroy_read_struct(&png, &info, nullptr); }
};

[[noreturn]] void leave(png_structp png, png_const_charp text) {
  auto* const d = reinterpret_cast<Decoder*>(png_get_error_ptr(png));
  std::strncpy(d->text, text, sizeof d->text - 1);
  png_longjmp(png, 1);
}

void keep_quiet(png_structp, png_const_charp) {}

void take_bytes(png_structp png, png_bytep to, size_t count) {
  auto* const d = reinterpret_cast<Decoder*>(png_get_io_ptr(png));
  if (count > d->left) png_error(png, "the file ends early");
  std::memcpy(to, d->bytes, count);
  d->bytes += count;
  d->left -= count;
}

bool read_head(Decoder& d, const Limits& limits) {
  d.png = png_create_read_struct(PNG_LIBPNG_VER_STRING, &d, leave, keep_quiet);
  if (!d.png) return false;
  if (setjmp(png_jmpbuf(d.png)) != 0) return false;
  d.info = png_create_info_struct(d.png);
  if (!d.info) return false;
  png_set_user_limits(d.png, png_uint_32(limits.side), png_uint_32(limits.side));
  png_set_chunk_malloc_max(d.png, kMostChunk);
  png_set_read_fn(d.png, &d, take_bytes);
  png_read_info(d.png, d.info);
  return true;
}

bool read_rows(Decoder& d, unsigned char* rgb, size_t row_bytes, size_t height) {
  if (setjmp(png_jmpbuf(d.png)) != 0) return false;
  png_set_expand(d.png);
  png_set_strip_16(d.png);
  png_set_strip_alpha(d.png);
  png_set_gray_to_rgb(d.png);
  const int passes = png_set_interlace_handling(d.png);
  png_read_update_info(d.png, d.info);
  if (png_get_rowbytes(d.png, d.info) != row_bytes) png_error(d.png, "rows have another size than their pixels");
  for (int pass = 0; pass < passes; ++pass)
    for (size_t y = 0; y < height; ++y) png_read_row(d.png, rgb + y * row_bytes, nullptr);
  return true;
}

}  // namespace

Image read_png(const Encoded& file) {
  const auto decoder = std::make_unique<Decoder>();
  Decoder& d = *decoder;
  d.bytes = file.bytes.data();
  d.left = file.bytes.size();
  const auto refuse = [&] { file.refuse(std::string("the PNG data is damaged: ") + d.text); };
  if (!read_head(d, file.limits)) refuse();
  Image out = file.room(png_get_image_width(d.png, d.info), png_get_image_height(d.png, d.info));
  if (!read_rows(d, out.rgb.data(), out.width * 3, out.height)) refuse();
  return out;
}

}  // namespace lumen::model::image
