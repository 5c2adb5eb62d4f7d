// Structured scalar programs: the bodies of `fit`, `code` and `decode` after checking, with functions inlined and types
// resolved. Small enough to interpret (codec.h) and to lower one to one into loop IR (kernel/synth/routine).
// Every index is proved to stay inside its array, field or table when a format is read (number/facts/range.h), so
// neither the interpreter nor a kernel checks it. Loops have constant bounds or end at `extent`. Values of untouched
// locals are zero. All values are scalars; arrays are local, of constant size. There is no aliasing and no unbounded
// loop.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "number/formula/formula.h"

namespace lumen {

// A tree, not SSA: routines have mutable variables.
struct RoutineExpr {
  enum class Kind {
    op,        // a ScalarOp over args
    constant,  // `real` / `integer`
    variable,  // scalar variable `slot`
    element,   // local array `slot`, args[0] is the index
    source,    // x[args[0]]: the values to encode (f32), or importance when slot == 1
    field,     // field `slot`, args[0] is the index inside its level's record (constant 0 for single fields)
    table,     // constant table `slot` of the format, args[0] is the index
    extent,    // i32: number of values to encode, len(x); a constant at block level, so it occurs only in row, tile,
               // tensor
  } kind = Kind::constant;
  Scalar type = Scalar::i32;
  ScalarOp op = ScalarOp::add_;
  int slot = 0;
  double real = 0;
  int64_t integer = 0;
  std::vector<RoutineExpr> args{};
};

struct RoutineStmt {
  enum class Kind {
    set,          // variable slot = value
    set_element,  // array slot[index] = value
    set_field,  // field slot[index] = value, converted to the field's type (floats round to nearest even; integers are
                // clamped in the codec, where wrapping would be an error)
    loop,       // for slot in from..to step `step` (slot is an i32 variable)
    branch,     // if value { body } else { otherwise }
  } kind = Kind::set;
  int slot = 0;
  RoutineExpr value{};
  RoutineExpr index{};
  RoutineExpr from{}, to{};
  int64_t step = 1;
  std::vector<RoutineStmt> body{}, otherwise{};
};

struct RoutineVariable {
  std::string name;
  Scalar type;
  int64_t extent = 0;  // 0: scalar, else array
};

struct Routine {
  std::vector<RoutineVariable> variables;  // parameters first (decode: i; code: v, i), then locals
  int parameters = 0;
  std::vector<RoutineStmt> body;
  RoutineExpr result;  // decode: f32; code: the code field's integer or float; unused by fit
  bool has_result = false;
};

}  // namespace lumen
