// Creates weights from rows of others: splits and joins tensors. Bytes move, values do not change; where rows share
// fields, tiles move as a whole, and parts of one weight must have equal tensor-level fields (else Error). Proved by
// tests/model/arch/arch_test.cpp and pack_test.cpp.
#pragma once

#include <optional>
#include <span>
#include <utility>

#include "model/arch/model.h"

namespace lumen::model::arch {

// Row r of the result is row source[r] of `w`; `shape` has as many rows.
Weight take_rows(const Weight& w, const graph::Shape& shape, std::span<const int64_t> source);
// Concatenates rows; all parts have the same element type and columns.
Weight stack_rows(std::span<const Weight> parts, const graph::Shape& shape);
// The same incrementally, so that only one part is held besides the result.
class RowStack {
 public:
  explicit RowStack(graph::Shape shape) : shape_(std::move(shape)) {}
  void add(const Weight& part);
  Weight finish();  // LUMEN_CHECKs that all rows are there

 private:
  void add_shared(const Weight& part);

  graph::Shape shape_;
  Weight out_;  // without its bytes until finish()
  std::optional<Room> room_;
  int64_t rows_ = 0;
};
// Whether the element type is a format with shared fields, so that only whole rows can be moved.
bool is_rounded(const Weight& w);
// The same in f32.
Weight decoded(const Weight& w);
// [.., in, out] -> [.., out, in]: f32 and 16-bit floats.
Weight transposed(const Weight& w);

}  // namespace lumen::model::arch
