#include "model/compress/strategy/stack.h"

#include <algorithm>

#include "base/check.h"
#include "base/error.h"
#include "base/ordinal.h"

namespace lumen::model::compress {

BlobStack::BlobStack(const Format& f, int64_t matrices, int64_t rows, int64_t columns)
    : all_(blob_layout(f, matrices * rows, columns)), one_(blob_layout(f, rows, columns)) {
  const bool tiles = f.tile_bytes > 0;
  if (tiles && matrices > 1 && rows % f.tile_rows != 0)
    throw Error(
        Exit::user,
        fmt::format("tiles of {} rows of format '{}' reach over two matrices of {} rows", f.tile_rows, f.name, rows),
        "choose a format without tiles for this stack");
  tensor_bytes_ = f.tensor_bytes;
  shares_ = tiles || f.tensor_bytes > 0;
  sections_.push_back(
      {all_.section[ordinal(Level::block)], one_.section[ordinal(Level::block)], rows * one_.row_stride});
  if (f.row_bytes > 0)
    sections_.push_back({all_.section[ordinal(Level::row)], one_.section[ordinal(Level::row)], rows * f.row_bytes});
  if (tiles)
    sections_.push_back({all_.section[ordinal(Level::tile)], one_.section[ordinal(Level::tile)],
                         rows / std::max<int64_t>(f.tile_rows, 1) * one_.tile_columns * f.tile_bytes});
}

std::vector<uint8_t> BlobStack::matrix(std::span<const uint8_t> all, int64_t m) const {
  LUMEN_CHECK(std::ssize(all) == all_.total, "{} bytes of {}", all.size(), all_.total);
  std::vector<uint8_t> out(one_.total);
  for (const Section& s : sections_)
    std::ranges::copy(all.subspan(s.of_all + m * s.bytes, s.bytes), out.begin() + s.of_one);
  if (tensor_bytes_ > 0)
    std::ranges::copy(all.subspan(all_.section[ordinal(Level::tensor)], tensor_bytes_),
                      out.begin() + one_.section[ordinal(Level::tensor)]);
  return out;
}

void BlobStack::put(std::span<uint8_t> all, int64_t m, std::span<const uint8_t> matrix) const {
  LUMEN_CHECK(std::ssize(all) == all_.total && std::ssize(matrix) == one_.total, "blobs of other shapes");
  for (const Section& s : sections_)
    std::ranges::copy(matrix.subspan(s.of_one, s.bytes), all.begin() + s.of_all + m * s.bytes);
}

}  // namespace lumen::model::compress
