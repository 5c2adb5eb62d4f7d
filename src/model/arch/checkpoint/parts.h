// Parameters of which several lie in one tensor of Hugging Face files, between each other: rows or columns
// [hf_from, hf_from + hf_count) of every hf_of are one parameter's (family.h). Values do not change; formats whose
// matrices cannot be turned, or cut where a parameter needs it, are refused or decoded as said below. Proved by
// tests/model/arch/parts_test.cpp and tests/model/families/families_test.cpp.
#pragma once

#include <string>
#include <vector>

#include "model/arch/model.h"

namespace lumen::model {

// The shape of the whole tensor `p` is a part of; `as_rows`: the one whose matrices are [out, in], whatever the file
// has, so that columns of a matrix that is kept turned are its rows.
graph::Shape shape_of_whole(const Parameter& p, bool as_rows);
// The parameter out of that tensor.
Weight part_of(const Weight& whole, const Parameter& p, bool as_rows);
// All parameters of one tensor put together as files hold it, and the type it then has, for which no bytes are needed.
// Parts of different formats, and such whose rows would have to be turned or cut, become f32.
// `as_rows` is possible where all parts have one element, which they then keep.
graph::Type type_of_whole(const Model& model, const std::vector<const Parameter*>& parts, bool as_rows = false);
Weight whole_of(const Model& model, const std::vector<const Parameter*>& parts, bool as_rows = false);

}  // namespace lumen::model
