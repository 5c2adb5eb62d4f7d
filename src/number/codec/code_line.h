// `code` of a format as one expression, and which locals of its fit no value depends on. Proved by
// tests/number/gradient_test.cpp.
#pragma once

#include <optional>

#include "number/format/format.h"

namespace lumen {

// The code of value v (variable 0) at place i (variable 1) by the fields alone. A local kept from the fit that was
// plainly assigned to a field stands for that field; an array of the fit that is read only where the scale is 0, so
// that every code means the same number there, stands for zeros. Nothing when code has loops or reads other locals of
// the fit.
std::optional<RoutineExpr> code_line(const Format& f);

}  // namespace lumen
