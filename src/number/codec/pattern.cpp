#include "number/codec/pattern.h"

#include <cstring>
#include <numeric>

#include "number/codec/codec.h"

namespace lumen {
namespace {

constexpr int64_t kRows = 8;

// Fills `want` records of `stride` bytes by repeating the first `have`.
void repeat(uint8_t* to, const uint8_t* from, int64_t have, int64_t want, int64_t stride) {
  for (int64_t r = 0; r < want; ++r) std::memcpy(to + r * stride, from + r % have * stride, stride);
}

}  // namespace

// Sums of four uniform numbers: close enough to normal, and identical on every machine.
std::vector<float> pattern_values(int64_t count, uint64_t seed, float deviation) {
  constexpr float kDeviationOfSum = 1.1547F;
  std::vector<float> values(count);
  uint64_t state = seed * 0x9e3779b97f4a7c15U + 1;
  for (float& x : values) {
    state = state * 6364136223846793005U + 1442695040888963407U;
    const uint64_t bits = state ^ (state >> 29);
    float sum = 0;
    for (int i = 0; i < 4; ++i) sum += ((bits >> (16 * i)) & 0xffff) / 32768.0F - 1;
    x = sum * (deviation / kDeviationOfSum);
  }
  return values;
}

Pattern::Pattern(const Format& f, int64_t columns)
    : format_(f), columns_(columns), known_(f.tile_bytes > 0 ? std::lcm(kRows, f.tile_rows) : kRows) {
  rows_ = encode(f, pattern_values(known_ * columns, 1), known_, columns);
}

void Pattern::fill(uint8_t* blob, int64_t rows) const {
  const BlobLayout from = blob_layout(format_, known_, columns_), all = blob_layout(format_, rows, columns_);
  const auto section = [&](Level level, int64_t have, int64_t want, int64_t stride) {
    const auto l = static_cast<size_t>(level);
    if (stride > 0) repeat(blob + all.section[l], rows_.data() + from.section[l], have, want, stride);
  };
  section(Level::block, known_, rows, from.row_stride);
  section(Level::row, known_, rows, format_.row_bytes);
  if (format_.tile_bytes > 0) {
    const int64_t t = format_.tile_rows;
    section(Level::tile, known_ / t, (rows + t - 1) / t, from.tile_columns * format_.tile_bytes);
  }
  section(Level::tensor, 1, 1, format_.tensor_bytes);
}

}  // namespace lumen
