#include "model/compress/saturation.h"

#include <algorithm>
#include <cmath>

#include "base/ordinal.h"
#include "number/format/layout.h"

namespace lumen::model {
namespace {

// Less than this part of the largest number is left, and the scale can grow no more: that is no rounding.
constexpr double kKept = 0.99;

double largest_of(std::span<const float> values) {
  double out = 0;
  for (const float v : values) out = std::max<double>(out, std::fabs(v));
  return out;
}

class Records {
 public:
  Records(const Format& f, std::span<const uint8_t> blob, int64_t rows, int64_t columns)
      : format_(f), blob_(blob), columns_(columns), layout_(blob_layout(f, rows, columns)) {}

  // Whether a float field that element (row, column) is decoded with stands at its largest magnitude.
  bool at_end(int64_t row, int64_t column) const {
    return std::any_of(format_.fields.begin(), format_.fields.end(), [&](const Field& field) {
      if (!field.type.is_float || field.type.bits > 16) return false;
      const uint8_t* record = this->record(field.level, row, column);
      for (int64_t j = 0; j < field.count; ++j) {
        const double value = field_decode(field.type, field.layout.read(record, j));
        if (!(std::fabs(value) < field.type.max_finite())) return true;
      }
      return false;
    });
  }

 private:
  const uint8_t* record(Level level, int64_t row, int64_t column) const {
    int64_t at = 0;
    switch (level) {
      case Level::block:
        at = (row * (columns_ / format_.block) + column / format_.block) * format_.block_bytes;
        break;
      case Level::row:
        at = row * format_.row_bytes;
        break;
      case Level::tile:
        at = (row / format_.tile_rows * layout_.tile_columns + column / format_.tile_columns) * format_.tile_bytes;
        break;
      case Level::tensor:
        break;
    }
    return blob_.data() + layout_.section[ordinal(level)] + at;
  }

  const Format& format_;
  std::span<const uint8_t> blob_;
  int64_t columns_;
  BlobLayout layout_;
};

}  // namespace

Saturation& Saturation::operator+=(const Saturation& other) {
  clamped += other.clamped;
  largest = std::max(largest, other.largest);
  lost += other.lost;
  blocks += other.blocks;
  return *this;
}

Saturation saturation(const Format& f, std::span<const float> x, std::span<const float> y,
                      std::span<const uint8_t> blob, int64_t rows, int64_t columns) {
  Saturation out;
  if (columns == 0) return out;
  const Records records(f, blob, rows, columns);
  const size_t block = f.block;
  for (size_t at = 0; at < x.size(); at += block) {
    const auto before = x.subspan(at, block), after = y.subspan(at, block);
    const double most = largest_of(before), left = largest_of(after);
    if (most == 0 || (left >= kKept * most && std::isfinite(left))) continue;
    if (left == 0) {
      out.lost += std::count_if(before.begin(), before.end(), [](float v) { return v != 0; });
      ++out.blocks;
      continue;
    }
    if (!records.at_end(static_cast<int64_t>(at) / columns, static_cast<int64_t>(at) % columns)) continue;
    for (size_t i = 0; i < block; ++i)
      if (std::fabs(before[i]) > left) ++out.clamped;
    out.largest = std::max(out.largest, most);
  }
  return out;
}

std::string Saturation::text(const Format& f) const {
  std::string out;
  if (clamped > 0)
    out = fmt::format("{} number{} beyond the range of {} (the largest is {:.4g}) {} smaller", clamped,
                      clamped == 1 ? "" : "s", f.name, largest, clamped == 1 ? "is" : "are");
  if (lost > 0) {
    out += fmt::format("{}{} number{}", out.empty() ? "" : "; ", lost, lost == 1 ? "" : "s");
    if (f.block > 1) out += fmt::format(" in {} block{}", blocks, blocks == 1 ? "" : "s");
    out += " too small for it became 0";
  }
  return out;
}

}  // namespace lumen::model
