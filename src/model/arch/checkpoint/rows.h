// Weights made of rows of others: what one file keeps apart another holds together. Bytes move, values do not change;
// where rows share fields, tiles move whole, and parts of one weight agree on what belongs to the tensor (Error
// otherwise). Proved by tests/model/arch/arch_test.cpp and pack_test.cpp.
#pragma once

#include <optional>
#include <span>
#include <utility>

#include "model/arch/model.h"

namespace lumen::model {

// Row r of the result is row source[r] of `w`; `shape` has as many rows.
Weight take_rows(const Weight& w, const graph::Shape& shape, std::span<const int64_t> source);
// One behind the other; all have the same element and columns.
Weight stack_rows(std::span<const Weight> parts, const graph::Shape& shape);
// The same part by part, so that never more than one of them is held beside the whole.
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
// Whether numbers share fields, so that only whole rows can be moved.
bool is_rounded(const Weight& w);
// The same in f32.
Weight decoded(const Weight& w);
// [.., in, out] -> [.., out, in]: f32 and floats of two bytes.
Weight transposed(const Weight& w);

}  // namespace lumen::model
