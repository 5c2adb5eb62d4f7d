// Converts routines without loops to one expression: locals substituted, branches turned into selections. Input of
// facts, gradients and per-lane kernels.
#pragma once

#include <functional>
#include <map>
#include <optional>

#include "number/format/format.h"

namespace lumen {

// The result of a routine as an expression over its parameters (variables 0 .. parameters - 1), fields and tables;
// nullopt when it has loops or arrays, reads kept locals that are not `given` (by slot), or grows too large.
std::optional<RoutineExpr> straight_line(const Routine& r, const std::map<int, RoutineExpr>& given = {});

// Evaluates an expression: `variables` by slot; fields come from `field(slot, index)`, tables from the format.
ScalarValue evaluate_expression(const Format& f, const RoutineExpr& e, const std::vector<ScalarValue>& variables,
                                const std::function<double(int, int64_t)>& field);

// In the language's syntax: d * S[i / 32]. Variables have their names in `r`.
std::string print_expression(const RoutineExpr& e, const Format& f, const Routine& r);

}  // namespace lumen
