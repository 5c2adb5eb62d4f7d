#include "model/arch/checkpoint/rows.h"

#include <algorithm>
#include <cstring>

#include "base/check.h"
#include "base/error.h"
#include "base/ordinal.h"
#include "base/threads/team.h"
#include "number/codec/codec.h"

namespace lumen::model::arch {
namespace {

// The per-row sections of a blob: offset and bytes of a row.
struct RowSection {
  int64_t offset, stride;
};

std::vector<RowSection> row_sections(const graph::Element& element, int64_t rows, int64_t columns) {
  if (!element.format) return {{0, columns * scalar_bytes(element.scalar)}};
  const Format& f = *element.format;
  const BlobLayout layout = blob_layout(f, rows, columns);
  std::vector<RowSection> out = {{layout.section[0], layout.row_stride}};
  if (f.row_bytes > 0) out.push_back({layout.section[ordinal(Level::row)], f.row_bytes});
  return out;
}

Error shared_fields(const Format& f) {
  return user_error("rows of a weight in format '{}' cannot be moved: its fields are shared between rows", f.name);
}

// Copies fields that rows share, for row r of the result from row source(r): tiles that come from one whole tile, and
// tensor-level fields.
template <typename Source>
void take_shared(const Weight& w, Weight& out, uint8_t* bytes, Source source) {
  if (!w.type.element.format) return;
  const Format& f = *w.type.element.format;
  const BlobLayout from = blob_layout(f, w.rows(), w.columns()), to = blob_layout(f, out.rows(), out.columns());
  if (f.tensor_bytes > 0)
    std::memcpy(bytes + to.section[ordinal(Level::tensor)], w.bytes.data() + from.section[ordinal(Level::tensor)],
                f.tensor_bytes);
  const int64_t band = from.tile_columns * f.tile_bytes;
  for (int64_t r = 0; r < out.rows() && f.tile_bytes > 0; ++r) {
    if (source(r) / f.tile_rows != source(r / f.tile_rows * f.tile_rows) / f.tile_rows) throw shared_fields(f);
    if (r % f.tile_rows == 0)
      std::memcpy(bytes + to.section[ordinal(Level::tile)] + r / f.tile_rows * band,
                  w.bytes.data() + from.section[ordinal(Level::tile)] + source(r) / f.tile_rows * band, band);
  }
}

Weight empty_like(const Weight& w, const graph::Shape& shape) {
  Weight out;
  out.type = {shape, w.type.element};
  LUMEN_CHECK(out.columns() == w.columns(), "{} columns of {}", out.columns(), w.columns());
  return out;
}

}  // namespace

Weight take_rows(const Weight& w, const graph::Shape& shape, std::span<const int64_t> source) {
  Weight out = empty_like(w, shape);
  LUMEN_CHECK(out.rows() == std::ssize(source));
  Room bytes(graph::byte_size(out.type));
  const auto from = row_sections(w.type.element, w.rows(), w.columns());
  const auto to = row_sections(w.type.element, out.rows(), out.columns());
  for (size_t s = 0; s < from.size(); ++s) {
    for (int64_t r = 0; r < out.rows(); ++r) {
      std::memcpy(bytes.data() + to[s].offset + r * to[s].stride,
                  w.bytes.data() + from[s].offset + source[r] * from[s].stride, to[s].stride);
    }
  }
  take_shared(w, out, bytes.data(), [&](int64_t r) { return source[r]; });
  out.bytes = std::move(bytes).bytes();
  return out;
}

void RowStack::add(const Weight& part) {
  if (!room_) {
    out_ = empty_like(part, shape_);
    room_.emplace(static_cast<size_t>(graph::byte_size(out_.type)));
  }
  if (!(part.type.element == out_.type.element)) throw user_error("parts of one weight are held in different formats");
  LUMEN_CHECK(part.columns() == out_.columns() && rows_ + part.rows() <= out_.rows());
  const auto from = row_sections(part.type.element, part.rows(), part.columns());
  const auto to = row_sections(out_.type.element, out_.rows(), out_.columns());
  for (size_t s = 0; s < from.size(); ++s) {
    std::memcpy(room_->data() + to[s].offset + rows_ * to[s].stride, part.bytes.data() + from[s].offset,
                part.rows() * to[s].stride);
  }
  add_shared(part);
  rows_ += part.rows();
}

void RowStack::add_shared(const Weight& part) {
  if (!part.type.element.format) return;
  const Format& f = *part.type.element.format;
  const BlobLayout from = blob_layout(f, part.rows(), part.columns()), to = blob_layout(f, out_.rows(), out_.columns());
  if (f.tensor_bytes > 0) {
    uint8_t* own = room_->data() + to.section[ordinal(Level::tensor)];
    const uint8_t* its = part.bytes.data() + from.section[ordinal(Level::tensor)];
    if (rows_ > 0 && std::memcmp(own, its, f.tensor_bytes) != 0) throw shared_fields(f);
    std::memcpy(own, its, f.tensor_bytes);
  }
  if (f.tile_bytes == 0) return;
  const bool is_last = rows_ + part.rows() == out_.rows();
  if (rows_ % f.tile_rows != 0 || (part.rows() % f.tile_rows != 0 && !is_last)) throw shared_fields(f);
  const int64_t band = from.tile_columns * f.tile_bytes;
  std::memcpy(room_->data() + to.section[ordinal(Level::tile)] + rows_ / f.tile_rows * band,
              part.bytes.data() + from.section[ordinal(Level::tile)],
              (part.rows() + f.tile_rows - 1) / f.tile_rows * band);
}

Weight RowStack::finish() {
  LUMEN_CHECK(room_ && rows_ == out_.rows());
  out_.bytes = std::move(*room_).bytes();
  return std::move(out_);
}

Weight stack_rows(std::span<const Weight> parts, const graph::Shape& shape) {
  LUMEN_CHECK(!parts.empty());
  RowStack stack(shape);
  for (const Weight& part : parts) stack.add(part);
  return stack.finish();
}

bool is_rounded(const Weight& w) {
  return !w.is_f32() && !is_plain(*w.type.element.format, Scalar::f16) &&
         !is_plain(*w.type.element.format, Scalar::bf16);
}

Weight decoded(const Weight& w) {
  if (w.is_f32()) return w;
  return f32_weight(w.type.shape, decode(*w.type.element.format, w.bytes, w.rows(), w.columns()));
}

Weight transposed(const Weight& w) {
  const size_t axes = w.type.shape.size();
  if (axes < 2) throw user_error("a parameter with {} axes cannot be transposed; matrices can", axes);
  const bool is_short =
      !w.is_f32() && (is_plain(*w.type.element.format, Scalar::f16) || is_plain(*w.type.element.format, Scalar::bf16));
  if (!w.is_f32() && !is_short)
    throw user_error("a weight in format '{}' cannot be transposed", w.type.element.format->name);
  const int64_t size = is_short ? 2 : 4;
  Weight out;
  out.type = w.type;
  std::swap(out.type.shape[axes - 2], out.type.shape[axes - 1]);
  const int64_t rows = w.type.shape[axes - 2].number(), columns = w.columns(), count = w.rows() * columns;
  Room bytes(count * size);
  constexpr int64_t kSquare = 32;  // block size: its cache lines fit into L1
  const int64_t bands = (rows + kSquare - 1) / kSquare, matrices = count == 0 ? 0 : count / (rows * columns);
  parallel_for(0, matrices * bands, {.is_worth = count > 65536}, [&](int64_t band) {
    const int64_t first = band / bands * rows * columns, top = band % bands * kSquare;
    for (int64_t left = 0; left < columns; left += kSquare) {
      for (int64_t r = top; r < std::min(rows, top + kSquare); ++r) {
        for (int64_t c = left; c < std::min(columns, left + kSquare); ++c)
          std::memcpy(bytes.data() + (first + c * rows + r) * size, w.bytes.data() + (first + r * columns + c) * size,
                      static_cast<size_t>(size));
      }
    }
  });
  out.bytes = std::move(bytes).bytes();
  return out;
}

}  // namespace lumen::model::arch
