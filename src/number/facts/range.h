// Interval analysis of routines: the values an expression can take, over all bit patterns of the fields. It proves that
// indices are in range and gives the exact range of integer codes. Must not depend on names or files.
#pragma once

#include <map>
#include <vector>

#include "number/format/format.h"

namespace lumen::read {

// Closed interval; integral for integers, and excluding NaN for floats (a NaN converts to the integer 0, which is added
// then).
struct Range {
  double low = 0, high = -1;  // low > high: no value yet
  bool empty() const { return low > high; }
  friend bool operator==(const Range&, const Range&) = default;
};
Range join(const Range& a, const Range& b);

// Represents `extent`, which is unknown when a format is read. Only `0..len(x)` gives a range that ends at kExtent - 1,
// and only copying preserves it, so an index with that range (or the constant 0) is in range; combining it with other
// bounds gives kNotInside.
constexpr double kExtent = 0x1p50;
constexpr double kNotInside = 0x1p52;

class RangeAnalysis {
 public:
  RangeAnalysis(const std::vector<Field>& fields, const std::vector<FormatTable>& tables)
      : fields_(fields), tables_(tables) {}

  // Ranges of all variables of a routine, given those of parameters and other externally set variables, by slot.
  void analyse(const Routine& routine, const std::map<int, Range>& given);
  Range of(const RoutineExpr& e) const;

  std::vector<Range> variables;  // by slot; arrays: union over all entries

 private:
  void statements(const std::vector<RoutineStmt>& body);
  void widen(int slot, Scalar type, const Range& r);

  const std::vector<Field>& fields_;
  const std::vector<FormatTable>& tables_;
  std::vector<Scalar> types_;
  std::vector<bool> fixed_;
  bool changed_ = false;
  bool widening_ = false;
};

Range range_of_type(Scalar type);
Range range_of_field(const FieldType& type);

}  // namespace lumen::read
