// Interval analysis of the scalar algebra, and a fixpoint over variables: loops are iterated a few times at most, then
// widened to the type's whole range. Sound, not tight. Proved by tests/number/facts/range_test.cpp.
#include "number/facts/range.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace lumen::read {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

Range hull(std::initializer_list<double> values) {
  Range r{kInfinity, -kInfinity};
  for (double v : values) {
    if (std::isnan(v)) return {-kInfinity, kInfinity};
    r.low = std::min(r.low, v);
    r.high = std::max(r.high, v);
  }
  return r;
}

double smear(double bound) {  // all bits below the highest bit of a bound
  if (bound <= 0) return 0;
  return std::exp2(std::floor(std::log2(bound)) + 1) - 1;
}

// A result outside the type wraps, so its range is unknown. Bounds not exact in a double count as outside.
Range within(Scalar type, Range r) {
  constexpr double kExact = 0x1p53;
  if (is_float(type)) return r;
  const Range all = range_of_type(type);
  if (scalar_bits(type) > 32 && (r.low < -kExact || r.high > kExact)) return all;
  return r.low >= all.low && r.high <= all.high ? r : all;
}

// The upper bound after a right shift; one less for a 64-bit bound that the double has rounded up.
double shifted_down(double high, double places) {
  const bool rounded = high == 0x1p63 || high == 0x1p64;
  return rounded && places > 0 ? high / std::exp2(places) - 1 : std::floor(high / std::exp2(places));
}

Range divide(Scalar type, const Range& a, const Range& b) {
  if (b.low <= 0 && b.high >= 0) return range_of_type(type);
  Range r = hull({a.low / b.low, a.low / b.high, a.high / b.low, a.high / b.high});
  if (!is_float(type)) r = {std::floor(r.low), std::floor(r.high)};
  return r;
}

Range remainder(Scalar type, const Range& a, const Range& b) {
  if (b.low <= 0) return range_of_type(type);
  if (a.low >= 0 && a.high < b.low) return a;
  return {0, b.high - 1};
}

Range shifted(ScalarOp op, Scalar type, const Range& a, const Range& b) {
  const int bits = scalar_bits(type);
  if (b.low < 0 || b.high >= bits) {
    if (op == ScalarOp::shr_ && a.low >= 0) return {0, a.high};
    return range_of_type(type);
  }
  if (op == ScalarOp::shl_) {
    return within(type, hull({a.low * std::exp2(b.low), a.low * std::exp2(b.high), a.high * std::exp2(b.low),
                              a.high * std::exp2(b.high)}));
  }
  return hull({std::floor(a.low / std::exp2(b.low)), std::floor(a.low / std::exp2(b.high)), shifted_down(a.high, b.low),
               shifted_down(a.high, b.high)});
}

Range bitwise(ScalarOp op, Scalar type, const Range& a, const Range& b) {
  if (type == Scalar::boolean) return {0, 1};
  if (op == ScalarOp::and_) {
    if (a.low >= 0 && b.low >= 0) return {0, std::min(a.high, b.high)};
    if (a.low >= 0) return {0, a.high};
    if (b.low >= 0) return {0, b.high};
    return range_of_type(type);
  }
  if (a.low < 0 || b.low < 0) return range_of_type(type);
  const double low = op == ScalarOp::or_ ? std::max(a.low, b.low) : 0;
  return {low, std::max(smear(a.high), smear(b.high))};
}

Range cast(Scalar from, Scalar to, const Range& a) {
  if (is_float(to) || !is_float(from)) return within(to, a);
  if (to == Scalar::boolean) return {0, 1};
  const Range all = range_of_type(to);
  const Range whole{std::min(std::trunc(a.low), 0.0), std::max(std::trunc(a.high), 0.0)};  // NaN gives 0
  return {std::max(whole.low, all.low), std::min(whole.high, all.high)};
}

Range of_op(const RoutineExpr& e, const Range* a) {
  const Scalar type = e.type;
  switch (e.op) {
    case ScalarOp::add_:
      return within(type, {a[0].low + a[1].low, a[0].high + a[1].high});
    case ScalarOp::sub_:
      return within(type, {a[0].low - a[1].high, a[0].high - a[1].low});
    case ScalarOp::mul_: {
      const double zero_safe[4] = {a[0].low * a[1].low, a[0].low * a[1].high, a[0].high * a[1].low,
                                   a[0].high * a[1].high};
      return within(type, hull({zero_safe[0], zero_safe[1], zero_safe[2], zero_safe[3]}));
    }
    case ScalarOp::div_:
      return within(type, divide(type, a[0], a[1]));
    case ScalarOp::rem_:
      return remainder(type, a[0], a[1]);
    case ScalarOp::neg_:
      return within(type, {-a[0].high, -a[0].low});
    case ScalarOp::abs_: {
      const double low = a[0].low > 0 ? a[0].low : a[0].high < 0 ? -a[0].high : 0;
      return within(type, {low, std::max(std::fabs(a[0].low), std::fabs(a[0].high))});
    }
    case ScalarOp::min_:
      return {std::min(a[0].low, a[1].low), std::min(a[0].high, a[1].high)};
    case ScalarOp::max_:
      return {std::max(a[0].low, a[1].low), std::max(a[0].high, a[1].high)};
    case ScalarOp::floor_:
      return {std::floor(a[0].low), std::floor(a[0].high)};
    case ScalarOp::ceil_:
      return {std::ceil(a[0].low), std::ceil(a[0].high)};
    case ScalarOp::trunc_:
    case ScalarOp::rint_:
    case ScalarOp::round_:
      return {std::floor(a[0].low), std::ceil(a[0].high)};
    case ScalarOp::select_:
      return join(a[1], a[2]);
    case ScalarOp::and_:
    case ScalarOp::or_:
    case ScalarOp::xor_:
      return bitwise(e.op, type, a[0], a[1]);
    case ScalarOp::shl_:
    case ScalarOp::shr_:
      return shifted(e.op, type, a[0], a[1]);
    case ScalarOp::cast_:
      return cast(e.args[0].type, type, a[0]);
    case ScalarOp::exponent_:
      return {-1023, 1024};
    case ScalarOp::sin_:
    case ScalarOp::cos_:
    case ScalarOp::tanh_:
      return {-1, 1};
    default:
      return range_of_type(type);
  }
}

}  // namespace

Range join(const Range& a, const Range& b) {
  if (a.empty()) return b;
  if (b.empty()) return a;
  const bool open = a.high == kExtent - 1 || b.high == kExtent - 1;
  const double smaller = std::min(a.high, b.high);
  if (open && smaller > 0 && smaller < kExtent - 1) return {std::min(a.low, b.low), kNotInside};
  return {std::min(a.low, b.low), std::max(a.high, b.high)};
}

Range range_of_type(Scalar type) {
  if (is_float(type)) return {-kInfinity, kInfinity};
  const int bits = scalar_bits(type);
  if (is_signed(type)) return {-std::exp2(bits - 1), std::exp2(bits - 1) - 1};
  return {0, std::exp2(bits) - 1};
}

Range range_of_field(const FieldType& type) {
  if (!type.is_float) {
    if (type.is_signed) return {-std::exp2(type.bits - 1), std::exp2(type.bits - 1) - 1};
    return {0, std::exp2(type.bits) - 1};
  }
  const double top = type.has_infinity() ? kInfinity : type.max_finite();
  return {type.has_sign ? -top : 0, top};
}

Range RangeAnalysis::of(const RoutineExpr& e) const {
  switch (e.kind) {
    case RoutineExpr::Kind::constant: {
      const double value = is_float(e.type) ? e.real : e.integer;
      return std::isnan(value) ? range_of_type(e.type) : Range{value, value};
    }
    case RoutineExpr::Kind::variable:
    case RoutineExpr::Kind::element:
      return variables[e.slot];
    case RoutineExpr::Kind::source:
      return range_of_type(Scalar::f32);
    case RoutineExpr::Kind::field:
      return range_of_field(fields_[e.slot].type);
    case RoutineExpr::Kind::table: {
      const auto& values = tables_[e.slot].values;
      const auto [low, high] = std::minmax_element(values.begin(), values.end());
      return {*low, *high};
    }
    case RoutineExpr::Kind::extent:
      return {kExtent, kExtent};
    case RoutineExpr::Kind::op:
      break;
  }
  Range args[3];
  for (size_t k = 0; k < e.args.size(); ++k) {
    args[k] = of(e.args[k]);
    if (args[k].empty()) return {};  // not reached yet
  }
  return of_op(e, args);
}

void RangeAnalysis::widen(int slot, Scalar type, const Range& r) {
  const size_t at = slot;
  if (fixed_[at]) return;
  Range joined = join(variables[at], r);
  if (joined == variables[at]) return;
  if (widening_) joined = range_of_type(type);
  if (joined == variables[at]) return;
  variables[at] = joined;
  changed_ = true;
}

void RangeAnalysis::statements(const std::vector<RoutineStmt>& body) {
  for (const RoutineStmt& s : body) {
    switch (s.kind) {
      case RoutineStmt::Kind::set:
      case RoutineStmt::Kind::set_element:
        widen(s.slot, types_[s.slot], of(s.value));
        break;
      case RoutineStmt::Kind::set_field:
        break;
      case RoutineStmt::Kind::loop: {
        const Range from = of(s.from), to = of(s.to);
        if (!from.empty() && !to.empty() && from.low < to.high) {
          widen(s.slot, Scalar::i32, {from.low, to.high - 1});
        }
        statements(s.body);
        break;
      }
      case RoutineStmt::Kind::branch:
        statements(s.body);
        statements(s.otherwise);
        break;
    }
  }
}

void RangeAnalysis::analyse(const Routine& routine, const std::map<int, Range>& given) {
  constexpr int kExactRounds = 4;
  const size_t count = routine.variables.size();
  variables.assign(count, Range{});
  types_.clear();
  fixed_.assign(count, false);
  for (size_t k = 0; k < count; ++k) {
    types_.push_back(routine.variables[k].type);
    if (routine.variables[k].extent > 0) variables[k] = {0, 0};  // arrays start as zeros
  }
  for (const auto& [slot, range] : given) {
    variables[slot] = range;
    fixed_[slot] = true;
  }
  int round = 0;
  do {
    changed_ = false;
    widening_ = round >= kExactRounds;
    statements(routine.body);
    ++round;
  } while (changed_);
  // Variables that were never set are zero.
  for (Range& r : variables) {
    if (r.empty()) r = {0, 0};
  }
}

}  // namespace lumen::read
