// The exact codec: interprets a format's routines. Slow, and the definition of right for every kernel.
//
// May include: base, base/threads, number/facts, number/format, number/interpret.
// Offers: code_line.h, pattern.h.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "number/format/format.h"

namespace lumen {

// Values of one field handed in by a strategy instead of being fitted (source = supplied or learned).
struct SuppliedField {
  int field = 0;
  std::vector<double> values;  // per record of the level, count per record, row-major
};

// x is R x C, row-major. Result has blob_layout(f, rows, columns).total bytes, padding zero. NaN and Inf in x: where
// the format cannot hold them the Error names the position (never a silent wrong value).
std::vector<uint8_t> encode(const Format& f, std::span<const float> x, int64_t rows, int64_t columns,
                            std::span<const SuppliedField> supplied = {});
// The same with the importance of values for formats that have fit(x, w): `importance` has one non-negative number per
// column, or one per element. Levels without a weighted fit use their plain one.
std::vector<uint8_t> encode_weighted(const Format& f, std::span<const float> x, int64_t rows, int64_t columns,
                                     std::span<const float> importance, std::span<const SuppliedField> supplied = {});
std::vector<float> decode(const Format& f, std::span<const uint8_t> blob, int64_t rows, int64_t columns);

// One element; (row, column) in an R x C blob.
float decode_at(const Format& f, std::span<const uint8_t> blob, int64_t rows, int64_t columns, int64_t row,
                int64_t column);

}  // namespace lumen
