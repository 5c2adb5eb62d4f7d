// The code of one byte in parts: what follows from fields alone is computed once for each record of theirs, what is
// left for each number. A division by a field that is a power of two whatever its bits is a multiplication by the
// reciprocal: that is exact, so either rounds the same number once. Proved by tests/number/facts/code_parts_test.cpp.
#pragma once

#include <optional>
#include <vector>

#include "number/facts/record_fit.h"

namespace lumen {

// Divisions by such fields as multiplications.
RoutineExpr by_reciprocals(const Format& f, RoutineExpr e);
Routine by_reciprocals(const Format& f, Routine code);

struct CodeParts {
  std::vector<RoutineExpr> parts;   // f32, over fields of one level, perhaps the tensor's besides
  std::optional<RoutineExpr> code;  // over the number (variable 0) and parts (1, 2, ..); absent: the number itself
};
CodeParts code_parts(const Format& f, const ByteCode& byte);

// The level of the fields that an expression reads; the tensor's where it reads no others.
Level level_of(const Format& f, const RoutineExpr& e);

}  // namespace lumen
