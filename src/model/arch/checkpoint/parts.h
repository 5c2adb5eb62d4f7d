// Parameters that are interleaved in one tensor of Hugging Face files: ranges of rows or columns of every hf_of belong
// to one parameter (family.h). Values do not change; formats whose matrices cannot be transposed or
// split as needed are refused or decoded as described below. Proved by tests/model/arch/parts_test.cpp and
// tests/model/families/families_test.cpp.
#pragma once

#include <string>
#include <vector>

#include "model/arch/model.h"

namespace lumen::model::arch {

// The shape of the tensor that `p` is a part of; `as_rows`: with matrices as [out, in] regardless of the file's layout,
// so that columns of a transposed matrix are its rows.
graph::Shape shape_of_whole(const Parameter& p, bool as_rows);
// Extracts the parameter from that tensor.
Weight part_of(const Weight& whole, const Parameter& p, bool as_rows);
// Combines all parameters of one tensor in the file's layout; and the type of the result, which needs no bytes. Parts
// of different formats, and parts whose rows would have to be transposed or split, become f32. `as_rows` requires that
// all parts have one element type, which is kept.
graph::Type type_of_whole(const Model& model, const std::vector<const Parameter*>& parts, bool as_rows = false);
Weight whole_of(const Model& model, const std::vector<const Parameter*>& parts, bool as_rows = false);

}  // namespace lumen::model::arch
