#include "model/arch/pairs.h"

#include <cstring>

#include "base/check.h"
#include "base/error.h"

namespace lumen::model {
namespace {

// New row r comes from old row source(r). Row sections move along with the data; a tensor section stays.
template <typename SourceOf>
void move_rows(Weight& w, SourceOf source) {
  const int64_t rows = w.rows();
  const Bytes old = w.bytes;
  std::vector<uint8_t> moved(old.begin(), old.end());
  const auto move_section = [&](int64_t offset, int64_t stride) {
    for (int64_t r = 0; r < rows; ++r) {
      std::memcpy(moved.data() + offset + r * stride, old.data() + offset + source(r) * stride,
                  static_cast<size_t>(stride));
    }
  };
  if (w.is_f32()) {
    move_section(0, w.columns() * 4);
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

int64_t head_rows(const Weight& w, int64_t heads) {
  LUMEN_CHECK(heads > 0 && w.rows() % heads == 0 && (w.rows() / heads) % 2 == 0, "{} rows, {} heads", w.rows(), heads);
  return w.rows() / heads;
}

}  // namespace

void halves_to_pairs(Weight& w, int64_t heads) {
  const int64_t d = head_rows(w, heads);
  move_rows(w, [d](int64_t r) { return r / d * d + (r % d) % 2 * (d / 2) + (r % d) / 2; });
}

void pairs_to_halves(Weight& w, int64_t heads) {
  const int64_t d = head_rows(w, heads);
  move_rows(w, [d](int64_t r) { return r / d * d + (r % d) % (d / 2) * 2 + (r % d) / (d / 2); });
}

}  // namespace lumen::model
