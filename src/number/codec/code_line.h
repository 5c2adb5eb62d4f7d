// `code` of a format as one expression, and the locals of its fit that no value depends on. Proved by
// tests/number/gradient_test.cpp.
#pragma once

#include <optional>

#include "number/format/format.h"

namespace lumen {

// The code of value v (variable 0) at position i (variable 1) as an expression over fields only. A local kept from the
// fit that was directly assigned to a field is replaced by that field. An array of the fit that is read only where the
// scale is 0, so that every code decodes to the same number, is replaced by zeros. nullopt when code has loops or reads
// other locals of the fit.
std::optional<RoutineExpr> code_line(const Format& f);

}  // namespace lumen
