// Typing and folding of routine expressions. A whole-number constant has type i64 until it meets a run-time value,
// whose type it then takes; so `bits - 1` is exact when a format is read and costs nothing at run time.
#pragma once

#include <string_view>
#include <vector>

#include "base/place.h"
#include "number/format/routine.h"

namespace lumen::read {

RoutineExpr integer_constant(int64_t value);  // i64: takes the type of what it meets
RoutineExpr float_constant(double value);     // f32, rounded
bool is_constant(const RoutineExpr& e);
inline bool is_untyped(const RoutineExpr& e) {
  return is_constant(e) && e.type == Scalar::i64;
}
bool is_whole(Scalar type);  // integers, not truth values
bool same_expression(const RoutineExpr& a, const RoutineExpr& b);

// The op over arguments of fitting types; folds constants. The result type follows from formula.def.
RoutineExpr make_op(ScalarOp op, std::vector<RoutineExpr> args);
RoutineExpr make_cast(ScalarOp op, Scalar to, RoutineExpr a);  // cast, bitcast, exponent

// i64 constants become i32 (or u32, i64 when they need it).
RoutineExpr to_run_time(RoutineExpr e);
// Value conversion; Error at `place` where a constant does not fit or a truth value is meant as a number.
RoutineExpr convert_to(RoutineExpr e, Scalar to, const Place& place);
// For an integer field or register: floats that are not provably whole are rounded half to even first.
RoutineExpr to_integer(RoutineExpr e, Scalar to, const Place& place);
RoutineExpr to_boolean(RoutineExpr e, const Place& place);

// a op b with the promotions of the language; `op` is the operator as written.
RoutineExpr binary(std::string_view op, RoutineExpr a, RoutineExpr b, const Place& place);
RoutineExpr unary(std::string_view op, RoutineExpr a, const Place& place);
// Makes both of one type, as for + or select.
void unify(RoutineExpr& a, RoutineExpr& b, const Place& place);

}  // namespace lumen::read
