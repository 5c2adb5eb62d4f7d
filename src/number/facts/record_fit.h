// A fit above block level in a form that runs outside the codec: largest (or smallest) magnitudes over the record, a
// reduction whose order does not matter, then one formula of them per field. Proved by
// tests/number/facts/record_fit_test.cpp, bit for bit against the codec.
#pragma once

#include <optional>
#include <utility>
#include <vector>

#include "number/format/format.h"

namespace lumen {

// Reduction of `of` (one input: x[j], f32; its output is an absolute value, so zeros have one sign).
struct Extreme {
  ScalarOp op = ScalarOp::max_;  // or min_
  Formula of;
};

struct RecordFit {
  std::vector<Extreme> extremes;
  std::vector<std::pair<int, Formula>> fields;  // by number; over all extremes, f32
};

// The fit of rows, tiles or the tensor. nullopt when the format has no fit of that level, a field of the level is not a
// single float, or the fit does something else: sums, argmax, fields of other levels, nested loops.
std::optional<RecordFit> record_fit(const Format& f, Level level);

// Formats whose blocks hold just one byte per number, with a code that depends on the number and on single floats of
// rows, tiles or the tensor: numbers can be encoded anywhere and in any order.
struct ByteCode {
  FieldType type;                   // of the byte
  std::optional<RoutineExpr> code;  // over v (variable 0) and fields; absent: the number itself
  std::vector<int> fields;          // above the block
};
std::optional<ByteCode> byte_code(const Format& f);

}  // namespace lumen
