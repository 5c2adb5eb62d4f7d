// Adapters of stacked matrices (mixtures of experts): files of other programs have one update per matrix, we have one
// for all. Proved by tests/model/arch/adapter/adapter_stack_test.cpp.
#pragma once

#include <map>
#include <optional>
#include <span>
#include <string>

#include "model/arch/adapter/adapter.h"

namespace lumen::model::arch {

// The number in the place of "{e}" in `pattern`: "model.layers.0.mlp.{e}.up_proj.weight".
std::optional<int64_t> matrix_number(const std::string& pattern, const std::string& name);

// One matrix of a stack, and the update of one.
Weight matrix_of(const Weight& w, int64_t number);
AdapterPart matrix_of(const AdapterPart& part, int64_t number);

// The update of all matrices of `p`; matrices that are not named stay unchanged. Ranks may differ: lower ones are
// zero-padded. Error (user, begins with `file`) when only some have magnitudes.
AdapterPart stack_matrices(const Parameter& p, const std::map<int64_t, AdapterPart>& matrices, const std::string& file);

// The update of all matrices of `p` from two matrices: A [E * rank, K], matrix by matrix, and B [rows, rank * E], whose
// columns are ordered by rank, then by matrix; row r of each update is row source[r] of B. If turned, A is [E * rank,
// rows] and B [K, rank * E], and their product is the update's transpose. Scale 1.
AdapterPart split_stack(const Parameter& p, const Weight& a, const Weight& b, std::span<const int64_t> source,
                        bool turned);

}  // namespace lumen::model::arch
