#include "model/compress/saturation.h"

#include <algorithm>
#include <cmath>

#include "base/ordinal.h"
#include "number/format/layout.h"

namespace lumen::model::compress {
namespace {

// When less than this part of the largest number remains and its scale is at its maximum, the loss is more than
// rounding.
constexpr double kKept = 0.99;

// Numbers in this range have f32 squares without overflow or underflow, and kAdded of them can be summed in f32.
constexpr float kTiny = 1e-15F, kHuge = 1e15F;
constexpr int64_t kAdded = 256;

// Sums over a run of numbers.
struct Run {
  float most = 0, left = 0;  // largest magnitudes, before and after
  double difference = 0, size = 0;

  void add(const float* x, const float* y, int64_t count) {
    float a = 0, b = 0, d = 0, s = 0;
#pragma omp simd reduction(max : a, b) reduction(+ : d, s)
    for (int64_t i = 0; i < count; ++i) {
      const float before = std::fabs(x[i]), after = std::fabs(y[i]), off = x[i] - y[i];
      a = before > a ? before : a;
      b = after > b ? after : b;
      d += off * off;
      s += before * before;
    }
    most = std::max(most, a);
    left = std::max(left, b);
    if (a > kTiny && a < kHuge && b < kHuge) {
      difference += d;
      size += s;
      return;
    }
    for (int64_t i = 0; i < count; ++i) {
      const double v = x[i], off = v - y[i];
      difference += off * off;
      size += v * v;
    }
  }
};

Run run_of(const float* x, const float* y, int64_t count) {
  Run out;
  for (int64_t i = 0; i < count; i += kAdded) out.add(x + i, y + i, std::min(kAdded, count - i));
  return out;
}

// Whether numbers have no common scale.
bool is_alone(const Format& f) {
  return f.block == 1 && f.row_bytes + f.tile_bytes + f.tensor_bytes == 0;
}

class Records {
 public:
  Records(const Format& f, std::span<const uint8_t> blob, int64_t rows, int64_t columns)
      : format_(f), blob_(blob), columns_(columns), layout_(blob_layout(f, rows, columns)) {}

  // Whether a float field that decodes element (row, column) is at its largest magnitude.
  bool at_end(int64_t row, int64_t column) const {
    return std::any_of(format_.fields.begin(), format_.fields.end(), [&](const Field& field) {
      if (!field.type.is_float || field.type.bits > 16) return false;
      // Codes of a block's largest number are always at their maximum.
      if (field.level == Level::block && field.count == format_.block && !is_alone(format_)) return false;
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

double Closeness::relative() const {
  return size > 0 ? std::sqrt(difference / size) : 0;
}

Closeness& Closeness::operator+=(const Closeness& other) {
  difference += other.difference;
  size += other.size;
  loss += other.loss;
  return *this;
}

namespace {

// Records the loss of numbers with one scale; the largest was `most` and is `left`.
void note_loss(const Records& records, std::span<const float> before, double most, double left, int64_t row,
               int64_t column, Saturation& loss) {
  if (most == 0 || (left >= kKept * most && std::isfinite(left))) return;
  if (left == 0) {
    loss.lost += std::count_if(before.begin(), before.end(), [](float v) { return v != 0; });
    ++loss.blocks;
    return;
  }
  if (!records.at_end(row, column)) return;
  for (const float v : before)
    if (std::fabs(v) > left) ++loss.clamped;
  loss.largest = std::max(loss.largest, most);
}

}  // namespace

Closeness compare(const Format& f, std::span<const float> x, std::span<const float> y, std::span<const uint8_t> blob,
                  int64_t rows, int64_t columns) {
  Closeness out;
  if (columns == 0) return out;
  const Records records(f, blob, rows, columns);
  const bool alone = is_alone(f);
  const int64_t together = f.block > 1 ? f.block : columns;
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t c = 0; c < columns; c += together) {
      const size_t at = r * columns + c;
      const Run run = run_of(x.data() + at, y.data() + at, together);
      out.difference += run.difference;
      out.size += run.size;
      if (!alone) {
        note_loss(records, x.subspan(at, together), run.most, run.left, r, c, out.loss);
        continue;
      }
      for (int64_t i = 0; i < together; ++i) {
        const float most = std::fabs(x[at + i]), left = std::fabs(y[at + i]);
        if (left >= 0.991F * most && left < kHuge) continue;  // the common case
        note_loss(records, x.subspan(at + i, 1), most, left, r, c + i, out.loss);
      }
    }
  }
  return out;
}

Saturation saturation(const Format& f, std::span<const float> x, std::span<const float> y,
                      std::span<const uint8_t> blob, int64_t rows, int64_t columns) {
  return compare(f, x, y, blob, rows, columns).loss;
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

}  // namespace lumen::model::compress
