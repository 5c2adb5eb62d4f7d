// Splits the code of one-byte formats: parts that depend on fields only are computed once per record, the rest per
// number. A division by a field that is always a power of two becomes a multiplication by the reciprocal: the
// reciprocal is exact, so both round the same number once. Proved by tests/number/facts/code_parts_test.cpp.
#pragma once

#include <optional>
#include <vector>

#include "number/facts/record_fit.h"

namespace lumen {

// Replaces divisions by such fields with multiplications.
RoutineExpr by_reciprocals(const Format& f, RoutineExpr e);
Routine by_reciprocals(const Format& f, Routine code);

struct CodeParts {
  std::vector<RoutineExpr> parts;   // f32, over fields of one level and optionally the tensor's
  std::optional<RoutineExpr> code;  // over the number (variable 0) and parts (1, 2, ..); absent: the number itself
};
CodeParts code_parts(const Format& f, const ByteCode& byte);

// The level of the fields that an expression reads; the tensor's if it reads no others.
Level level_of(const Format& f, const RoutineExpr& e);

}  // namespace lumen
