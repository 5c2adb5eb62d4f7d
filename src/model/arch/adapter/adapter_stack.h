// Changes of stacked matrices (mixtures have such): files of other programs keep one for each matrix, we keep one for
// all. Proved by tests/model/arch/adapter/adapter_stack_test.cpp.
#pragma once

#include <map>
#include <optional>
#include <span>
#include <string>

#include "model/arch/adapter/adapter.h"

namespace lumen::model {

// The number that stands where `pattern` has "{e}": "model.layers.0.mlp.{e}.up_proj.weight".
std::optional<int64_t> matrix_number(const std::string& pattern, const std::string& name);

// One of several matrices of the same shape, and the change of one.
Weight matrix_of(const Weight& w, int64_t number);
AdapterPart matrix_of(const AdapterPart& part, int64_t number);

// The change of all matrices of `p`, where those that are not named stay as they are. Ranks may differ: narrower ones
// are filled up with zeros. Error (user, begins with `file`) when only some have magnitudes.
AdapterPart stack_matrices(const Parameter& p, const std::map<int64_t, AdapterPart>& matrices, const std::string& file);

// The change of all matrices of `p` from two matrices: A [E * rank, K], matrix by matrix, and B [rows, rank * E], whose
// columns go by rank and then by matrix; row r of each change is row source[r] of B. Turned, A is [E * rank, rows] and
// B [K, rank * E], and their product is the change's transpose. Scale 1.
AdapterPart split_stack(const Parameter& p, const Weight& a, const Weight& b, std::span<const int64_t> source,
                        bool turned);

}  // namespace lumen::model
