#include "model/arch/pairs.h"

#include <cstring>

#include "base/check.h"
#include "base/error.h"

namespace lumen::model {
namespace {

int64_t row_count(const Weight& w) {
  return w.type.shape.size() < 2 ? w.columns() : w.rows();
}

// New row r comes from old row source(r). Row sections move along with the data; a tensor section stays.
template <typename SourceOf>
void move_rows(Weight& w, SourceOf source) {
  const int64_t rows = row_count(w);
  const Bytes old = w.bytes;
  std::vector<uint8_t> moved(old.begin(), old.end());
  const auto move_section = [&](int64_t offset, int64_t stride) {
    for (int64_t r = 0; r < rows; ++r) {
      std::memcpy(moved.data() + offset + r * stride, old.data() + offset + source(r) * stride,
                  static_cast<size_t>(stride));
    }
  };
  if (w.is_f32()) {
    move_section(0, w.type.shape.size() < 2 ? 4 : w.columns() * 4);
    w.bytes = std::move(moved);
    return;
  }
  const Format& f = *w.type.element.format;
  if (f.tile_bytes > 0) {
    throw user_error("rows of a weight in format '{}' cannot be reordered: its tiles share fields between rows",
                     f.name);
  }
  const BlobLayout layout = blob_layout(f, rows, w.columns());
  move_section(layout.section[0], layout.row_stride);
  if (f.row_bytes > 0) move_section(layout.section[static_cast<int>(Level::row)], f.row_bytes);
  w.bytes = std::move(moved);
}

// Rows of a head, and how many of them turn.
std::pair<int64_t, int64_t> head_rows(const Weight& w, int64_t heads, int64_t turned) {
  LUMEN_CHECK(heads > 0 && row_count(w) % heads == 0, "{} rows, {} heads", row_count(w), heads);
  const int64_t rows = row_count(w) / heads, turning = turned == 0 ? rows : turned;
  LUMEN_CHECK(turning % 2 == 0 && turning <= rows, "{} of {} rows turn", turning, rows);
  return {rows, turning};
}

}  // namespace

void halves_to_pairs(Weight& w, int64_t heads, int64_t turned) {
  const auto [d, t] = head_rows(w, heads, turned);
  move_rows(w, [d = d, t = t](int64_t r) {
    const int64_t at = r % d;
    return at < t ? r - at + at % 2 * (t / 2) + at / 2 : r;
  });
}

void pairs_to_halves(Weight& w, int64_t heads, int64_t turned) {
  const auto [d, t] = head_rows(w, heads, turned);
  move_rows(w, [d = d, t = t](int64_t r) {
    const int64_t at = r % d;
    return at < t ? r - at + at % (t / 2) * 2 + at / (t / 2) : r;
  });
}

}  // namespace lumen::model
