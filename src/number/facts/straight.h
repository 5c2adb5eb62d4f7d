// Routines without loops as one expression: locals substituted, branches turned into selections. Facts, gradients and
// kernels that work lane by lane start from it.
#pragma once

#include <functional>
#include <map>
#include <optional>

#include "number/format/format.h"

namespace lumen {

// The result of a routine as an expression over its parameters (variables 0 .. parameters - 1), fields and tables;
// nullopt when it has loops or arrays, reads kept locals that are not `given` (by slot), or grows too large.
std::optional<RoutineExpr> straight_line(const Routine& r, const std::map<int, RoutineExpr>& given = {});

// Values of an expression: `variables` by slot; fields are asked from `field(slot, index)`. Tables come from the
// format.
ScalarValue evaluate_expression(const Format& f, const RoutineExpr& e, const std::vector<ScalarValue>& variables,
                                const std::function<double(int, int64_t)>& field);

// As in the language: d * S[i / 32]. Variables are named after `r`.
std::string print_expression(const RoutineExpr& e, const Format& f, const Routine& r);

}  // namespace lumen
