// Properties derived from a format's formulas; kernels and reports query these instead of format names.
//
// May include: base, number/format.
// Offers: code_parts.h, limits.h, range.h, record_fit.h, straight.h, type_ids.h, typing.h.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "number/format/format.h"

namespace lumen {

// decode(i) == scale(g) * q(i) + offset(g), where q is an exact small integer computed from integer fields and tables,
// and scale and offset are constant over groups of `group` consecutive elements. All three are expressions over i
// (parameter 0).
struct AffineForm {
  RoutineExpr scale;                  // f32
  RoutineExpr q;                      // i32, as function of i
  std::optional<RoutineExpr> offset;  // f32, absent when identically zero
  int64_t group = 0;             // largest aligned run of elements of a row over which scale and offset are constant;
                                 // kWholeRow when they change only per row or tensor
  int64_t q_min = 0, q_max = 0;  // exact range of q over all bit patterns
  bool q_is_table = false;       // q comes from a table look-up
};

constexpr int64_t kWholeRow = int64_t{1} << 40;  // more columns than any tensor has

// decode(i) == scale(g) * value(i) [+ offset(g)] with any value, integer or not, computed from the element's code only:
// for formats that are not affine (small floats, tables of floats). Every affine format is also scaled.
struct ScaledForm {
  std::optional<RoutineExpr> scale;   // f32, absent when 1
  RoutineExpr value;                  // f32
  std::optional<RoutineExpr> offset;  // f32
  int64_t group = 0;
};

struct FormatFacts {
  std::optional<ScaledForm> scaled;
  std::optional<AffineForm> affine;  // nullopt: not affine in integers
  bool power_of_two_scale = false;
  int code_bits = 0;                         // bits per element of the code field, 0 without one
  std::optional<std::vector<float>> values;  // when decode is a function of at most 8 bits and no scale: all values
  bool symmetric = false;                    // -x has a code for every x that has one
  bool has_zero = false;
  std::vector<std::string> lines;  // the same in words, for reports
};
FormatFacts facts_of(const Format& f);

// The only field besides the codes, if it is one number for the whole tensor: a scale that a calibration or the
// previous training step can supply. -1: the format has other fields, or none.
int tensor_scale(const Format& f);

// The scalar type that a format is equivalent to: one IEEE float of that width per element; nullopt for other formats.
// Checks its structure only.
std::optional<Scalar> plain_scalar(const Format& f);
// The same for a format that is a single field of any type; null otherwise.
const FieldType* plain_field(const Format& f);

}  // namespace lumen
