// Weights made of rows of others: what one file keeps apart another holds together. Bytes move, values do not change; a
// format whose fields belong to tiles or to the whole tensor cannot be cut by rows (Error). Proved by
// tests/model/arch_test.cpp.
#pragma once

#include <span>

#include "model/arch/model.h"

namespace lumen::model {

// Row r of the result is row source[r] of `w`; `shape` has as many rows.
Weight take_rows(const Weight& w, const graph::Shape& shape, std::span<const int64_t> source);
// One behind the other; all have the same element and columns.
Weight stack_rows(std::span<const Weight> parts, const graph::Shape& shape);
// [in, out] -> [out, in]: f32 and floats of two bytes.
Weight transposed(const Weight& w);

}  // namespace lumen::model
