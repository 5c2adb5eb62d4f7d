#include "model/arch/rows.h"

#include <cstring>

#include "base/check.h"
#include "base/error.h"

namespace lumen::model {
namespace {

// The parts of a blob that go by rows: offset and bytes of a row.
struct RowSection {
  int64_t offset, stride;
};

std::vector<RowSection> row_sections(const graph::Element& element, int64_t rows, int64_t columns) {
  if (!element.format) return {{0, columns * static_cast<int64_t>(scalar_bytes(element.scalar))}};
  const Format& f = *element.format;
  if (f.tile_bytes > 0 || f.tensor_bytes > 0) {
    throw user_error("rows of a weight in format '{}' cannot be moved: its fields are shared between rows", f.name);
  }
  const BlobLayout layout = blob_layout(f, rows, columns);
  std::vector<RowSection> out = {{layout.section[0], layout.row_stride}};
  if (f.row_bytes > 0) out.push_back({layout.section[static_cast<int>(Level::row)], f.row_bytes});
  return out;
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
  LUMEN_CHECK(out.rows() == static_cast<int64_t>(source.size()));
  std::vector<uint8_t> bytes(static_cast<size_t>(graph::byte_size(out.type)));
  const auto from = row_sections(w.type.element, w.rows(), w.columns());
  const auto to = row_sections(w.type.element, out.rows(), out.columns());
  for (size_t s = 0; s < from.size(); ++s) {
    for (int64_t r = 0; r < out.rows(); ++r) {
      std::memcpy(bytes.data() + to[s].offset + r * to[s].stride,
                  w.bytes.data() + from[s].offset + source[static_cast<size_t>(r)] * from[s].stride,
                  static_cast<size_t>(to[s].stride));
    }
  }
  out.bytes = std::move(bytes);
  return out;
}

Weight stack_rows(std::span<const Weight> parts, const graph::Shape& shape) {
  LUMEN_CHECK(!parts.empty());
  Weight out = empty_like(parts[0], shape);
  std::vector<uint8_t> bytes(static_cast<size_t>(graph::byte_size(out.type)));
  const auto to = row_sections(out.type.element, out.rows(), out.columns());
  int64_t first = 0;
  for (const Weight& part : parts) {
    LUMEN_CHECK(part.type.element == out.type.element && part.columns() == out.columns());
    const auto from = row_sections(part.type.element, part.rows(), part.columns());
    for (size_t s = 0; s < from.size(); ++s) {
      std::memcpy(bytes.data() + to[s].offset + first * to[s].stride, part.bytes.data() + from[s].offset,
                  static_cast<size_t>(part.rows() * to[s].stride));
    }
    first += part.rows();
  }
  LUMEN_CHECK(first == out.rows());
  out.bytes = std::move(bytes);
  return out;
}

Weight transposed(const Weight& w) {
  LUMEN_CHECK(w.type.shape.size() == 2);
  const int64_t rows = w.rows(), columns = w.columns();
  const bool is_short =
      !w.is_f32() && (is_plain(*w.type.element.format, Scalar::f16) || is_plain(*w.type.element.format, Scalar::bf16));
  if (!w.is_f32() && !is_short)
    throw user_error("a weight in format '{}' cannot be transposed", w.type.element.format->name);
  const auto size = static_cast<int64_t>(is_short ? 2 : 4);
  Weight out;
  out.type = {{w.type.shape[1], w.type.shape[0]}, w.type.element};
  std::vector<uint8_t> bytes(static_cast<size_t>(rows * columns * size));
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t c = 0; c < columns; ++c) {
      std::memcpy(bytes.data() + (c * rows + r) * size, w.bytes.data() + (r * columns + c) * size,
                  static_cast<size_t>(size));
    }
  }
  out.bytes = std::move(bytes);
  return out;
}

}  // namespace lumen::model
