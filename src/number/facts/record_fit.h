// A fit above the block as what any program can do apart from the codec: largest (or smallest) magnitudes over the
// record, whose order does not matter, then one formula of them for each field. Proved by
// tests/number/facts/record_fit_test.cpp, bit for bit beside the codec.
#pragma once

#include <optional>
#include <utility>
#include <vector>

#include "number/format/format.h"

namespace lumen {

// The extreme of `of` (one input: x[j], f32; its output is an absolute value, so that zeros have one sign).
struct Extreme {
  ScalarOp op = ScalarOp::max_;  // or min_
  Formula of;
};

struct RecordFit {
  std::vector<Extreme> extremes;
  std::vector<std::pair<int, Formula>> fields;  // by number; over all extremes, f32
};

// The fit of rows, tiles or the tensor. Nothing where the format has no fit of that level, a field of the level is none
// of one float, or the fit does something else: sums, places of extremes, fields of other levels, loops within loops.
std::optional<RecordFit> record_fit(const Format& f, Level level);

// Formats of one byte for each number and nothing else within blocks, whose code follows from the number and from
// single floats of rows, tiles or the tensor: numbers can be encoded anywhere and in any order.
struct ByteCode {
  FieldType type;                   // of the byte
  std::optional<RoutineExpr> code;  // over v (variable 0) and fields; absent: the number itself
  std::vector<int> fields;          // above the block
};
std::optional<ByteCode> byte_code(const Format& f);

}  // namespace lumen
