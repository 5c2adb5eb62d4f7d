// The exact codec: interprets a format's routines. Slow, and the reference for every kernel.
//
// May include: base, base/threads, number/facts, number/format, number/interpret.
// Offers: code_line.h, pattern.h.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "number/format/format.h"

namespace lumen {

// Values of one field supplied by a strategy instead of fitted (source = supplied or learned).
struct SuppliedField {
  int field = 0;
  std::vector<double> values;  // per record of the level, count per record, row-major
};

// x is R x C, row-major. The result has blob_layout(f, rows, columns).total bytes, with zero padding. NaN or Inf in x
// that the format cannot represent is an Error naming the position (never a silent wrong value).
std::vector<uint8_t> encode(const Format& f, std::span<const float> x, int64_t rows, int64_t columns,
                            std::span<const SuppliedField> supplied = {});
// The same, weighted by importance, for formats that have fit(x, w): `importance` has one non-negative number per
// column, or one per element. Levels without a weighted fit use their plain one.
std::vector<uint8_t> encode_weighted(const Format& f, std::span<const float> x, int64_t rows, int64_t columns,
                                     std::span<const float> importance, std::span<const SuppliedField> supplied = {});
std::vector<float> decode(const Format& f, std::span<const uint8_t> blob, int64_t rows, int64_t columns);

// One element; (row, column) in an R x C blob.
float decode_at(const Format& f, std::span<const uint8_t> blob, int64_t rows, int64_t columns, int64_t row,
                int64_t column);

}  // namespace lumen
