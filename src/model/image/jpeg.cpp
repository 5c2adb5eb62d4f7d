// Errors of the library leave its functions by longjmp, which must not pass C++ objects: the functions below that it
// may leave have none.
#include <csetjmp>
#include <cstdio>
// It needs <cstdio> before it.
#include <jpeglib.h>

#include <memory>

#include "model/image/decoders.h"

namespace lumen::model::image {
namespace {

constexpr long kMostMemory = long{1} << 29;  // of the library, for one picture
constexpr int kMostScans = 64;               // of a progressive picture: a small file can ask for as many as it likes

struct Failure {
  jpeg_error_mgr manager = {};
  std::jmp_buf out = {};
  char text[JMSG_LENGTH_MAX] = {};
};

[[noreturn]] void leave(j_common_ptr info) {
  auto* const failure = reinterpret_cast<Failure*>(info->err);
  failure->manager.format_message(info, failure->text);
  std::longjmp(failure->out, 1);
}

void keep_quiet(j_common_ptr) {}

void count_scans(j_common_ptr info) {
  const auto* const all = reinterpret_cast<j_decompress_ptr>(info);
  auto* const failure = reinterpret_cast<Failure*>(info->err);
  if (all->input_scan_number <= kMostScans) return;
  std::snprintf(failure->text, sizeof failure->text, "more than %d scans", kMostScans);
  std::longjmp(failure->out, 1);
}

struct Decoder {
  Failure failure = {};
  jpeg_progress_mgr progress = {};
  jpeg_decompress_struct info = {};
  bool is_made = false;

  ~Decoder() {
    if (is_made) jpeg_destroy_decompress(&info);
  }
};

// False after an error, whose text is in d.failure.
bool read_head(Decoder& d, const unsigned char* bytes, unsigned long size) {
  if (setjmp(d.failure.out) != 0) return false;
  d.info.err = jpeg_std_error(&d.failure.manager);
  d.failure.manager.error_exit = leave;
  d.failure.manager.output_message = keep_quiet;
  jpeg_create_decompress(&d.info);
  d.is_made = true;
  d.info.mem->max_memory_to_use = kMostMemory;
  d.progress.progress_monitor = count_scans;
  d.info.progress = &d.progress;
  jpeg_mem_src(&d.info, bytes, size);
  jpeg_read_header(&d.info, TRUE);
  const bool is_printed = d.info.jpeg_color_space == JCS_CMYK || d.info.jpeg_color_space == JCS_YCCK;
  d.info.out_color_space = is_printed ? JCS_CMYK : JCS_RGB;
  return true;
}

// `row`: room for one row of four bytes for each pixel.
bool read_rows(Decoder& d, unsigned char* rgb, unsigned char* row) {
  if (setjmp(d.failure.out) != 0) return false;
  jpeg_start_decompress(&d.info);
  const bool is_printed = d.info.out_color_space == JCS_CMYK, is_inverted = d.info.saw_Adobe_marker != 0;
  while (d.info.output_scanline < d.info.output_height) {
    unsigned char* const to = rgb + size_t{d.info.output_scanline} * d.info.output_width * 3;
    unsigned char* into = is_printed ? row : to;
    jpeg_read_scanlines(&d.info, &into, 1);
    if (!is_printed) continue;
    for (size_t x = 0; x < d.info.output_width; ++x) {
      const auto ink = [&](size_t c) -> unsigned { return is_inverted ? 255U - row[4 * x + c] : row[4 * x + c]; };
      for (size_t c = 0; c < 3; ++c) to[3 * x + c] = ((255U - ink(c)) * (255U - ink(3)) + 127U) / 255U;
    }
  }
  // Data that ends early is filled with grey by the library, which warns of it.
  jpeg_finish_decompress(&d.info);
  return true;
}

}  // namespace

Image read_jpeg(const Encoded& file) {
  const auto decoder = std::make_unique<Decoder>();
  Decoder& d = *decoder;
  const auto refuse = [&] { file.refuse(std::string("the JPEG data is damaged: ") + d.failure.text); };
  if (!read_head(d, reinterpret_cast<const unsigned char*>(file.bytes.data()), file.bytes.size())) refuse();
  Image out = file.room(d.info.image_width, d.info.image_height);
  std::vector<unsigned char> row(out.width * 4);
  if (!read_rows(d, out.rgb.data(), row.data())) refuse();
  if (d.failure.manager.num_warnings > 0) file.refuse("the JPEG data is damaged or ends early");
  return out;
}

}  // namespace lumen::model::image
