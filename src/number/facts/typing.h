// Typing and constant folding of routine expressions. An integer constant has type i64 until it is combined with a
// run-time value, whose type it then takes; so `bits - 1` is exact when a format is read and costs nothing at run time.
#pragma once

#include <string_view>
#include <vector>

#include "base/place.h"
#include "number/format/routine.h"

namespace lumen::read {

RoutineExpr integer_constant(int64_t value);  // i64: takes the type of the other operand
RoutineExpr float_constant(double value);     // f32, rounded
bool is_constant(const RoutineExpr& e);
inline bool is_untyped(const RoutineExpr& e) {
  return is_constant(e) && e.type == Scalar::i64;
}
bool is_whole(Scalar type);  // integers, not booleans
bool same_expression(const RoutineExpr& a, const RoutineExpr& b);

// Applies op to arguments of matching types; folds constants. The result type follows from formula.def.
RoutineExpr make_op(ScalarOp op, std::vector<RoutineExpr> args);
RoutineExpr make_cast(ScalarOp op, Scalar to, RoutineExpr a);  // cast, bitcast, exponent

// i64 constants become i32 (or u32, i64 if needed).
RoutineExpr to_run_time(RoutineExpr e);
// Value conversion; Error at `place` when a constant does not fit or a boolean is used as a number.
RoutineExpr convert_to(RoutineExpr e, Scalar to, const Place& place);
// For an integer field or register: floats that are not provably whole are rounded half to even first.
RoutineExpr to_integer(RoutineExpr e, Scalar to, const Place& place);
RoutineExpr to_boolean(RoutineExpr e, const Place& place);

// a op b with the language's promotions; `op` is the operator's source text.
RoutineExpr binary(std::string_view op, RoutineExpr a, RoutineExpr b, const Place& place);
RoutineExpr unary(std::string_view op, RoutineExpr a, const Place& place);
// Converts both to one type, as for + or select.
void unify(RoutineExpr& a, RoutineExpr& b, const Place& place);

}  // namespace lumen::read
