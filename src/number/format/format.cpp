// Sizes derived from a format: offsets of the sections of a blob, and bits per weight. Must not depend on any format's
// name. Proved by tests/number/codec_test.cpp.
#include "number/format/format.h"

#include <algorithm>

#include "base/check.h"
#include "base/error.h"

namespace lumen {
namespace {

constexpr int64_t kSectionAlignment = 64;

int64_t checked_multiply(int64_t a, int64_t b) {
  int64_t result = 0;
  if (__builtin_mul_overflow(a, b, &result))
    throw user_error("a tensor of this size cannot be stored ({} x {} bytes)", a, b);
  return result;
}

int64_t checked_add(int64_t a, int64_t b) {
  int64_t result = 0;
  if (__builtin_add_overflow(a, b, &result)) throw user_error("a tensor of this size cannot be stored");
  return result;
}

int64_t align_section(int64_t bytes) {
  return checked_add(bytes, kSectionAlignment - 1) / kSectionAlignment * kSectionAlignment;
}

int64_t divide_up(int64_t a, int64_t b) {
  return a / b + (a % b != 0);
}

struct SectionBytes {
  int64_t bytes[kLevels];
};

SectionBytes section_bytes(const Format& f, int64_t rows, int64_t columns) {
  if (rows < 0 || columns < 0) throw user_error("a tensor of {} x {} elements", rows, columns);
  if (columns % f.block != 0) {
    throw Error(
        Exit::user,
        fmt::format("{} columns cannot be stored in format {}: its blocks have {} elements", columns, f.name, f.block),
        "choose a format whose block divides the last dimension");
  }
  SectionBytes result{};
  const int64_t blocks = checked_multiply(rows, columns / f.block);
  result.bytes[0] = checked_multiply(blocks, f.block_bytes);
  if (f.row_bytes > 0) result.bytes[1] = checked_multiply(rows, f.row_bytes);
  if (f.tile_bytes > 0) {
    LUMEN_CHECK(f.tile_rows > 0 && f.tile_columns > 0, "tiles of {}", f.name);
    const int64_t tiles = checked_multiply(divide_up(rows, f.tile_rows), divide_up(columns, f.tile_columns));
    result.bytes[2] = checked_multiply(tiles, f.tile_bytes);
  }
  result.bytes[3] = f.tensor_bytes;
  return result;
}

}  // namespace

BlobLayout blob_layout(const Format& f, int64_t rows, int64_t columns) {
  const SectionBytes sections = section_bytes(f, rows, columns);
  BlobLayout layout;
  layout.row_stride = columns / f.block * f.block_bytes;
  layout.data_bytes = sections.bytes[0];
  layout.tile_columns = f.tile_bytes > 0 ? divide_up(columns, f.tile_columns) : 0;
  int64_t offset = 0;
  for (int level = 0; level < kLevels; ++level) {
    layout.section[level] = offset;
    offset = align_section(checked_add(offset, sections.bytes[level]));
  }
  layout.total = offset;
  return layout;
}

bool Format::weighs() const {
  return std::ranges::any_of(weighted_fit, [](const auto& routine) { return routine.has_value(); });
}

double Format::bits_per_weight(int64_t rows, int64_t columns) const {
  const SectionBytes sections = section_bytes(*this, rows, columns);
  double bytes = 0;
  for (int64_t section : sections.bytes) bytes += section;
  return rows == 0 || columns == 0 ? 0 : 8 * bytes / rows / columns;
}

double Format::bits_per_weight() const {
  double bits = 8.0 * block_bytes / block;
  if (tile_bytes > 0) {
    bits += 8.0 * tile_bytes / tile_rows / tile_columns;
  }
  return bits;
}

}  // namespace lumen
