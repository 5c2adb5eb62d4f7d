// y = decode(code(x)) of one element as a scalar formula: the stored code is replaced by the result of `code`, rounding
// to the field's type becomes scalar operations, small tables become selections. Must not depend on graphs. Proved by
// tests/number/gradient_test.cpp: equal to decode(encode(x)) bit for bit, derivative against LSQ.
#include <algorithm>
#include <cmath>

#include "base/check.h"
#include "base/ordinal.h"
#include "number/codec/code_line.h"
#include "number/facts/facts.h"
#include "number/facts/range.h"
#include "number/facts/straight.h"
#include "number/facts/typing.h"
#include "number/gradient/gradient.h"

namespace lumen {
namespace {

using Kind = RoutineExpr::Kind;
using read::float_constant;
using read::make_cast;
using read::make_op;

constexpr size_t kLargestTable = 64;

RoutineExpr value_x() {
  RoutineExpr e{Kind::source, Scalar::f32};
  e.args.push_back(RoutineExpr{Kind::constant, Scalar::i32});
  return e;
}

RoutineExpr whole(int64_t value) {
  RoutineExpr e{Kind::constant, Scalar::i32};
  e.integer = value;
  return e;
}

// Converts an expression of `code` (variable 0 is v, 1 is i) to one over x and i (variable 0).
RoutineExpr in_terms_of_x(const RoutineExpr& e) {
  if (e.kind == Kind::variable) {
    if (e.slot == 0) return value_x();
    RoutineExpr i = e;
    i.slot = 0;
    return i;
  }
  RoutineExpr result = e;
  for (RoutineExpr& a : result.args) a = in_terms_of_x(a);
  return result;
}

bool reads_x(const RoutineExpr& e) {
  return e.kind == Kind::source || std::any_of(e.args.begin(), e.args.end(), reads_x);
}

bool reads_table_by_x(const RoutineExpr& e) {
  if (e.kind == Kind::table && reads_x(e.args[0])) return true;
  return std::any_of(e.args.begin(), e.args.end(), reads_table_by_x);
}

// The stored value of a float field in scalar operations: nearest even on the grid of the value's own exponent,
// saturating.
RoutineExpr rounded_to(const FieldType& t, RoutineExpr v) {
  if (t.bits == 32 && t.mantissa_bits == 23) return v;
  auto bounded = [&](RoutineExpr x, double low) {
    RoutineExpr above = make_op(ScalarOp::max_, {std::move(x), float_constant(low)});
    return make_op(ScalarOp::min_, {std::move(above), float_constant(t.max_finite())});
  };
  const bool is_scale = t.special == FieldType::Special::scale;
  const double low = is_scale ? std::ldexp(1.0, -t.bias) : t.has_sign ? -t.max_finite() : 0;
  const int smallest = is_scale ? -t.bias : 1 - t.bias;
  RoutineExpr e = make_op(ScalarOp::max_, {make_cast(ScalarOp::exponent_, Scalar::i32, v), whole(smallest)});
  RoutineExpr steps = make_op(ScalarOp::ldexp_, {std::move(v), make_op(ScalarOp::sub_, {whole(t.mantissa_bits), e})});
  RoutineExpr grid = make_op(ScalarOp::rint_, {std::move(steps)});
  return bounded(make_op(ScalarOp::ldexp_, {std::move(grid), make_op(ScalarOp::sub_, {e, whole(t.mantissa_bits)})}),
                 low);
}

RoutineExpr stored(const Format& f, RoutineExpr code) {
  const FieldType& t = f.fields[f.code_field].type;
  if (t.is_float) return rounded_to(t, std::move(code));
  read::RangeAnalysis ranges(f.fields, f.tables);
  ranges.variables = {read::Range{0, static_cast<double>(f.block - 1)}};
  const read::Range possible = ranges.of(code), all = read::range_of_field(t);
  auto bound = [&](ScalarOp op, double limit) {
    RoutineExpr constant = whole(static_cast<int64_t>(limit));
    constant.type = code.type;
    code = make_op(op, {std::move(code), std::move(constant)});
  };
  if (possible.low < all.low) bound(ScalarOp::max_, all.low);
  if (possible.high > all.high) bound(ScalarOp::min_, all.high);
  return code;
}

// Replaces entry i of the code field in the decode expression; false when other entries of it are read.
bool replace_code(const Format& f, RoutineExpr& e, const RoutineExpr& code) {
  if (e.kind == Kind::field && e.slot == f.code_field) {
    const bool own = e.args[0].kind == Kind::variable || (f.block == 1 && read::is_constant(e.args[0]));
    if (!own) return false;
    e = code;
    return true;
  }
  return std::all_of(e.args.begin(), e.args.end(), [&](RoutineExpr& a) { return replace_code(f, a, code); });
}

// Builds the formula and collects its inputs: x, then fields, then i.
class Lowering {
 public:
  explicit Lowering(const Format& f) : format_(f) {}

  std::optional<FakeQuantize> lower(const RoutineExpr& y) {
    collect(y);
    Formula& formula = result_.formula;
    formula.inputs.push_back(Scalar::f32);
    for (const ElementField& x : result_.fields) {
      formula.inputs.push_back(format_.fields[x.field].type.register_type());
    }
    if (result_.uses_index) formula.inputs.push_back(Scalar::i32);
    const int output = node(y);
    if (failed_) return std::nullopt;
    formula.outputs = {output};
    result_.formula = simplify_formula(formula);
    return std::move(result_);
  }

 private:
  void collect(const RoutineExpr& e) {
    if (e.kind == Kind::field) {
      if (slot_of(e) < 0) result_.fields.push_back({e.slot, e.args[0]});
      return;  // its index is computed by the code that reads the field
    }
    if (e.kind == Kind::variable) result_.uses_index = true;
    for (const RoutineExpr& a : e.args) collect(a);
  }

  int slot_of(const RoutineExpr& e) const {
    for (size_t k = 0; k < result_.fields.size(); ++k) {
      if (result_.fields[k].field == e.slot && read::same_expression(result_.fields[k].index, e.args[0])) return k;
    }
    return -1;
  }

  int node(const RoutineExpr& e) {
    Formula& f = result_.formula;
    switch (e.kind) {
      case Kind::constant:
        return is_float(e.type) ? f.constant(e.type, e.real) : f.integer(e.type, e.integer);
      case Kind::source:
        return f.input(0);
      case Kind::field:
        return f.input(1 + slot_of(e));
      case Kind::variable:
        return f.input(1 + result_.fields.size());
      case Kind::table: {
        const FormatTable& t = format_.tables[e.slot];
        if (t.values.size() > kLargestTable) {
          failed_ = true;
          return f.constant(e.type, 0);
        }
        return entry(t, node(e.args[0]), 0, t.values.size());
      }
      case Kind::op:
        break;
      default:
        LUMEN_UNREACHABLE("expression kind {} in a straight line", ordinal(e.kind));
    }
    int args[3] = {-1, -1, -1};
    for (size_t k = 0; k < e.args.size(); ++k) args[k] = node(e.args[k]);
    if (scalar_op_info(e.op).result == "cast") return f.convert(e.op, e.type, args[0]);
    return f.op(e.op, args[0], args[1], args[2]);
  }

  // Table entry by binary selection.
  int entry(const FormatTable& t, int index, size_t first, size_t last) {
    Formula& f = result_.formula;
    if (last - first == 1) {
      const double value = t.values[first];
      return is_float(t.type) ? f.constant(t.type, value) : f.integer(t.type, static_cast<int64_t>(value));
    }
    const size_t middle = first + (last - first) / 2;
    const int below = f.op(ScalarOp::lt_, index, f.integer(f.type(index), middle));
    const int low = entry(t, index, first, middle);
    const int high = entry(t, index, middle, last);
    return f.op(ScalarOp::select_, below, low, high);
  }

  const Format& format_;
  FakeQuantize result_;
  bool failed_ = false;
};

// A look-up has zero derivative, so it gets the slope of the function it approximates: value + (u - u') where u = (x -
// offset) / scale, clamped to the smallest and largest value, and u' is u without a derivative (through its bits). The
// sum is exactly `value`.
std::optional<RoutineExpr> with_slope(const Format& f, const RoutineExpr& code) {
  const FormatFacts facts = facts_of(f);
  if (!facts.scaled) return std::nullopt;
  const ScaledForm& s = *facts.scaled;
  RoutineExpr value = s.value;
  read::RangeAnalysis ranges(f.fields, f.tables);
  ranges.variables = {read::Range{0, static_cast<double>(f.block - 1)}};
  const read::Range range = ranges.of(value);
  if (!std::isfinite(range.low) || !std::isfinite(range.high)) return std::nullopt;
  if (!replace_code(f, value, code)) return std::nullopt;
  RoutineExpr u = value_x();
  if (s.offset) u = make_op(ScalarOp::sub_, {std::move(u), *s.offset});
  if (s.scale) {
    RoutineExpr divided = make_op(ScalarOp::div_, {std::move(u), *s.scale});
    u = make_op(ScalarOp::select_,
                {make_op(ScalarOp::ne_, {*s.scale, float_constant(0)}), std::move(divided), float_constant(0)});
  }
  u = make_op(ScalarOp::max_, {std::move(u), float_constant(range.low)});
  u = make_op(ScalarOp::min_, {std::move(u), float_constant(range.high)});
  RoutineExpr flat = make_cast(ScalarOp::bitcast_, Scalar::f32, make_cast(ScalarOp::bitcast_, Scalar::i32, u));
  RoutineExpr y = make_op(ScalarOp::add_, {std::move(value), make_op(ScalarOp::sub_, {std::move(u), std::move(flat)})});
  if (s.scale) y = make_op(ScalarOp::mul_, {*s.scale, std::move(y)});
  if (s.offset) y = make_op(ScalarOp::add_, {std::move(y), *s.offset});
  return y;
}

}  // namespace

std::optional<FakeQuantize> fake_quantize_formula(const Format& f) {
  if (!f.code || f.code_field < 0) return std::nullopt;
  auto y = straight_line(f.decode);
  const auto code = code_line(f);
  if (!y || !code) return std::nullopt;
  const RoutineExpr own = stored(f, in_terms_of_x(*code));
  if (!replace_code(f, *y, own)) return std::nullopt;
  if (reads_table_by_x(*y)) {
    y = with_slope(f, own);
    if (!y) return std::nullopt;
  }
  return Lowering(f).lower(*y);
}

}  // namespace lumen
