// Symbolic analysis of decode: it is rewritten as scale * value + offset, where scale and offset are slow (they depend
// on i only through i / group) and value depends on the element's own code. Must not depend on any particular format.
// Proved by tests/number/facts/facts_test.cpp: the recombined parts decode random bits as decode does.
#include "number/facts/facts.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <set>

#include "base/check.h"
#include "number/facts/range.h"
#include "number/facts/straight.h"
#include "number/facts/typing.h"

namespace lumen {
namespace {

using Kind = RoutineExpr::Kind;
using read::make_cast;
using read::make_op;

constexpr double kLargestExact = 1 << 20;  // of q

RoutineExpr as_float(RoutineExpr e) {
  return make_cast(ScalarOp::cast_, Scalar::f32, std::move(e));
}

// value == scale * part + offset; an absent scale is 1, an absent part or offset is 0.
struct Linear {
  std::optional<RoutineExpr> scale, part, offset;
};

class Analysis {
 public:
  explicit Analysis(const Format& f) : format_(f) {}

  // The number of consecutive elements over which e is constant: 1 when it may change with each, 0 when it never
  // changes within a row. Periods are combined by gcd, whose neutral element is 0.
  int64_t period(const RoutineExpr& e) const {
    switch (e.kind) {
      case Kind::constant:
        return 0;
      case Kind::variable:
        return 1;
      case Kind::table:
        return period(e.args[0]);
      case Kind::field: {
        const Field& field = format_.fields[e.slot];
        switch (field.level) {
          case Level::block:
            return std::gcd(period(e.args[0]), format_.block);
          case Level::tile:
            return format_.tile_columns;
          default:
            return 0;
        }
      }
      case Kind::op:
        break;
      default:
        return 1;
    }
    if (const int64_t divided = step_of_quotient(e)) return std::gcd(divided, format_.block);
    int64_t p = 0;
    for (const RoutineExpr& a : e.args) p = std::gcd(p, period(a));
    return p;
  }
  bool slow(const RoutineExpr& e) const { return period(e) != 1; }

  std::optional<Linear> split(const RoutineExpr& e) const {
    if (slow(e)) return Linear{{}, {}, e};
    if (e.kind == Kind::op) {
      switch (e.op) {
        case ScalarOp::mul_:
          return product(e);
        case ScalarOp::div_:
          if (is_float(e.type) && slow(e.args[1])) return quotient(e);
          break;
        case ScalarOp::add_:
        case ScalarOp::sub_:
          return sum(e);
        case ScalarOp::neg_:
          return negative(e);
        case ScalarOp::cast_:
          if (is_float(e.type) && !is_float(e.args[0].type)) return whole(e.args[0]);
          break;
        default:
          break;
      }
    }
    return Linear{{}, e, {}};
  }

 private:
  // Returns c for i / c, for i / a / b with c = a b, and for i >> k; 0 for anything else.
  static int64_t step_of_quotient(const RoutineExpr& e) {
    if (e.kind == Kind::variable) return 1;
    const bool whole_division = e.kind == Kind::op && e.op == ScalarOp::div_ && !is_float(e.type);
    const bool shift = e.kind == Kind::op && e.op == ScalarOp::shr_;
    if (!whole_division && !shift) return 0;
    const RoutineExpr& by = e.args[1];
    if (!read::is_constant(by) || by.integer < (whole_division ? 1 : 0) || by.integer > (shift ? 30 : INT32_MAX))
      return 0;
    const int64_t step = whole_division ? by.integer : int64_t{1} << by.integer;
    const int64_t inner = step_of_quotient(e.args[0]);
    return inner < (int64_t{1} << 31) ? inner * step : 0;
  }

  static std::optional<RoutineExpr> times(const std::optional<RoutineExpr>& a, const std::optional<RoutineExpr>& b,
                                          bool reversed) {
    if (!a) return b;
    if (!b) return a;
    return reversed ? make_op(ScalarOp::mul_, {*b, *a}) : make_op(ScalarOp::mul_, {*a, *b});
  }

  std::optional<Linear> product(const RoutineExpr& e) const {
    for (size_t k = 0; k < 2; ++k) {
      const RoutineExpr& factor = e.args[k];
      if (!slow(factor)) continue;
      auto rest = split(e.args[1 - k]);
      if (!rest) return std::nullopt;
      rest->scale = times(factor, rest->scale, k == 1);
      if (rest->offset) rest->offset = times(factor, rest->offset, k == 1);
      return rest;
    }
    auto a = split(e.args[0]), b = split(e.args[1]);
    if (!a || !b || a->offset || b->offset || (!a->scale && !b->scale)) return Linear{{}, e, {}};
    return Linear{times(a->scale, b->scale, false), make_op(ScalarOp::mul_, {*a->part, *b->part}), {}};
  }

  std::optional<Linear> quotient(const RoutineExpr& e) const {
    auto rest = split(e.args[0]);
    if (!rest) return std::nullopt;
    const RoutineExpr one = read::float_constant(1);
    rest->scale = make_op(ScalarOp::div_, {rest->scale.value_or(one), e.args[1]});
    if (rest->offset) rest->offset = make_op(ScalarOp::div_, {*rest->offset, e.args[1]});
    return rest;
  }

  std::optional<Linear> negative(const RoutineExpr& e) const {
    auto rest = split(e.args[0]);
    if (!rest) return std::nullopt;
    rest->scale = make_op(ScalarOp::neg_, {rest->scale.value_or(read::float_constant(1))});
    if (rest->offset) rest->offset = make_op(ScalarOp::neg_, {*rest->offset});
    return rest;
  }

  std::optional<Linear> sum(const RoutineExpr& e) const {
    auto a = split(e.args[0]), b = split(e.args[1]);
    if (!a || !b) return std::nullopt;
    const bool minus = e.op == ScalarOp::sub_;
    Linear result;
    if (a->part && b->part) {
      const bool same =
          a->scale.has_value() == b->scale.has_value() && (!a->scale || read::same_expression(*a->scale, *b->scale));
      if (!same) return std::nullopt;
      result.scale = a->scale;
      result.part = make_op(e.op, {*a->part, *b->part});
    } else if (a->part) {
      result.scale = a->scale;
      result.part = a->part;
    } else if (b->part) {
      result.part = b->part;
      result.scale = b->scale;
      if (minus) result.scale = make_op(ScalarOp::neg_, {b->scale.value_or(read::float_constant(1))});
    }
    if (a->offset && b->offset) {
      result.offset = make_op(e.op, {*a->offset, *b->offset});
    } else if (a->offset) {
      result.offset = a->offset;
    } else if (b->offset) {
      result.offset = minus ? make_op(ScalarOp::neg_, {*b->offset}) : *b->offset;
    }
    return result;
  }

  // An integer expression: slow terms go to the offset, slow factors to the scale; constants stay in the code part.
  std::optional<Linear> whole(const RoutineExpr& n) const {
    const bool pair = n.kind == Kind::op && n.args.size() == 2;
    if (pair && (n.op == ScalarOp::add_ || n.op == ScalarOp::sub_)) {
      for (size_t k = 0; k < 2; ++k) {
        const RoutineExpr& term = n.args[k];
        if (read::is_constant(term) || !slow(term)) continue;
        auto rest = whole(n.args[1 - k]);
        if (!rest) return std::nullopt;
        const bool minus = n.op == ScalarOp::sub_;
        if (minus && k == 0) {  // term - rest
          rest->scale = make_op(ScalarOp::neg_, {rest->scale.value_or(read::float_constant(1))});
          if (rest->offset) rest->offset = make_op(ScalarOp::neg_, {*rest->offset});
        }
        RoutineExpr moved = as_float(term);
        if (minus && k == 1) moved = make_op(ScalarOp::neg_, {std::move(moved)});
        rest->offset = rest->offset ? make_op(ScalarOp::add_, {*rest->offset, std::move(moved)}) : std::move(moved);
        return rest;
      }
    }
    if (pair && n.op == ScalarOp::mul_) {
      for (size_t k = 0; k < 2; ++k) {
        if (read::is_constant(n.args[k]) || !slow(n.args[k])) continue;
        auto rest = whole(n.args[1 - k]);
        if (!rest) return std::nullopt;
        rest->scale = times(as_float(n.args[k]), rest->scale, false);
        if (rest->offset) rest->offset = times(as_float(n.args[k]), rest->offset, false);
        return rest;
      }
    }
    return Linear{{}, as_float(n), {}};
  }

  const Format& format_;
};

// The integer operand of an exact conversion to f32, or nullopt.
std::optional<RoutineExpr> integer_of(const RoutineExpr& part) {
  if (part.kind != Kind::op) return std::nullopt;
  if (part.op == ScalarOp::cast_ && !is_float(part.args[0].type) && part.args[0].type != Scalar::boolean)
    return part.args[0];
  if (part.op == ScalarOp::add_ || part.op == ScalarOp::sub_ || part.op == ScalarOp::mul_) {
    auto inner = [](const RoutineExpr& a) -> std::optional<RoutineExpr> {
      if (read::is_constant(a) && a.real == std::nearbyint(a.real) && std::fabs(a.real) < kLargestExact) {
        RoutineExpr whole{Kind::constant, Scalar::i32};
        whole.integer = static_cast<int64_t>(a.real);
        return whole;
      }
      return integer_of(a);
    };
    const auto a = inner(part.args[0]), b = inner(part.args[1]);
    if (a && b && a->type == b->type) return make_op(part.op, {*a, *b});
  }
  return std::nullopt;
}

bool is_power_of_two(const Format& f, const RoutineExpr& e) {
  switch (e.kind) {
    case Kind::constant: {
      int exponent = 0;
      return is_float(e.type) && e.real > 0 && std::frexp(e.real, &exponent) == 0.5;
    }
    case Kind::field:
      return f.fields[e.slot].type.special == FieldType::Special::scale && f.fields[e.slot].type.is_float;
    case Kind::op:
      if (e.op == ScalarOp::ldexp_) return is_power_of_two(f, e.args[0]);
      if (e.op == ScalarOp::mul_ || e.op == ScalarOp::div_)
        return is_power_of_two(f, e.args[0]) && is_power_of_two(f, e.args[1]);
      return false;
    default:
      return false;
  }
}

void collect_fields(const RoutineExpr& e, std::set<int>& fields) {
  if (e.kind == Kind::field) fields.insert(e.slot);
  for (const RoutineExpr& a : e.args) collect_fields(a, fields);
}

bool reads_variable(const RoutineExpr& e) {
  if (e.kind == Kind::variable) return true;
  return std::any_of(e.args.begin(), e.args.end(), reads_variable);
}

// Whether i is used only to index the field itself, so that all elements decode alike.
bool uniform(const RoutineExpr& e) {
  if (e.kind == Kind::variable) return false;
  if (e.kind == Kind::field) return e.args[0].kind == Kind::variable || !reads_variable(e.args[0]);
  return std::all_of(e.args.begin(), e.args.end(), uniform);
}

// All values of an expression that reads one field of at most `bits` bits; in order of codes.
std::optional<std::vector<float>> all_values(const Format& f, const RoutineExpr& e, int bits) {
  std::set<int> fields;
  collect_fields(e, fields);
  if (fields.size() != 1 || !uniform(e)) return std::nullopt;
  const FieldType& type = f.fields[*fields.begin()].type;
  if (type.bits > bits) return std::nullopt;
  std::vector<float> values;
  for (uint64_t code = 0; code < (uint64_t{1} << type.bits); ++code) {
    const auto value =
        evaluate_expression(f, e, {ScalarValue{0, 0}}, [&](int, int64_t) { return field_decode(type, code); });
    values.push_back(static_cast<float>(value.real));
  }
  return values;
}

int code_bits(const Format& f) {
  if (f.code_field >= 0) return f.fields[f.code_field].type.bits;
  int bits = 0;
  for (const Field& field : f.fields) {
    if (field.level != Level::block || field.count != f.block || f.block == 1) continue;
    if (bits != 0) return 0;
    bits = field.type.bits;
  }
  return bits;
}

// offset == scale * -z with a zero point z among the values of q: then q = z decodes to zero.
bool is_zero_point(const Format& f, const AffineForm& a) {
  const RoutineExpr& o = *a.offset;
  if (o.kind != Kind::op || o.op != ScalarOp::mul_ || !read::same_expression(o.args[0], a.scale)) return false;
  const RoutineExpr& minus = o.args[1];
  if (minus.kind != Kind::op || minus.op != ScalarOp::neg_) return false;
  const auto z = integer_of(minus.args[0]);
  if (!z) return false;
  read::RangeAnalysis ranges(f.fields, f.tables);
  ranges.variables = {read::Range{0, static_cast<double>(f.block - 1)}};
  const read::Range range = ranges.of(*z);
  return range.low >= a.q_min && range.high <= a.q_max;
}

void judge_values(const Format& f, FormatFacts& facts) {
  if (!facts.scaled) return;
  constexpr int kEnumerable = 12;
  const auto values = all_values(f, facts.scaled->value, kEnumerable);
  if (values) {
    std::set<float> distinct;
    for (float v : *values) {
      if (std::isfinite(v)) distinct.insert(v);
    }
    const bool closed = std::all_of(distinct.begin(), distinct.end(), [&](float v) { return distinct.contains(-v); });
    facts.symmetric = closed && !facts.scaled->offset;
    facts.has_zero = distinct.contains(0.0F) && !facts.scaled->offset;
  } else if (facts.affine) {
    facts.symmetric = facts.affine->q_min == -facts.affine->q_max && !facts.affine->offset;
    facts.has_zero = facts.affine->q_min <= 0 && facts.affine->q_max >= 0 && !facts.affine->offset;
  } else if (f.code_field >= 0) {
    const FieldType& type = f.fields[f.code_field].type;
    facts.symmetric = type.is_float && type.has_sign && !facts.scaled->offset;
    facts.has_zero = type.is_float && type.special != FieldType::Special::scale && !facts.scaled->offset;
  }
}

void judge_zero_point(const Format& f, FormatFacts& facts) {
  if (facts.affine && facts.affine->offset && is_zero_point(f, *facts.affine)) facts.has_zero = true;
}

void describe(const Format& f, FormatFacts& facts) {
  auto text = [&](const RoutineExpr& e) { return print_expression(e, f, f.decode); };
  auto say = [&](std::string line) { facts.lines.push_back(std::move(line)); };
  auto group = [](int64_t g) { return g >= kWholeRow ? std::string("whole rows") : fmt::format("groups of {}", g); };
  if (facts.affine) {
    const AffineForm& a = *facts.affine;
    say(fmt::format("affine in integers: value = scale * q{}", a.offset ? " + offset" : ""));
    say(fmt::format("  scale  = {}, the same over {}", text(a.scale), group(a.group)));
    say(fmt::format("  q      = {}, from {} to {}", text(a.q), a.q_min, a.q_max));
    if (a.offset) say(fmt::format("  offset = {}", text(*a.offset)));
  } else if (facts.scaled) {
    const ScaledForm& s = *facts.scaled;
    say("not affine in integers");
    if (s.scale) say(fmt::format("  scale  = {}, the same over {}", text(*s.scale), group(s.group)));
    say(fmt::format("  value  = {}", text(s.value)));
    if (s.offset) say(fmt::format("  offset = {}", text(*s.offset)));
  } else {
    say("decoded element by element: no common scale was found");
  }
  if (facts.power_of_two_scale) say("the scale is a power of two");
  if (facts.code_bits > 0) say(fmt::format("codes of {} bits", facts.code_bits));
  if (facts.values) say(fmt::format("{} values", facts.values->size()));
  say(fmt::format("{}symmetric, {} zero", facts.symmetric ? "" : "not ", facts.has_zero ? "has" : "has no"));
}

}  // namespace

FormatFacts facts_of(const Format& f) {
  FormatFacts facts;
  facts.code_bits = code_bits(f);
  if (const auto straight = straight_line(f.decode)) {
    const Analysis analysis(f);
    const auto linear = analysis.split(*straight);
    if (linear && linear->part) {
      ScaledForm scaled;
      scaled.scale = linear->scale;
      scaled.value = *linear->part;
      scaled.offset = linear->offset;
      if (scaled.scale) scaled.group = std::gcd(scaled.group, analysis.period(*scaled.scale));
      if (scaled.offset) scaled.group = std::gcd(scaled.group, analysis.period(*scaled.offset));
      if (scaled.group == 0) scaled.group = kWholeRow;
      if (const auto q = integer_of(scaled.value)) {
        read::RangeAnalysis ranges(f.fields, f.tables);
        ranges.variables = {read::Range{0, static_cast<double>(f.block - 1)}};
        const read::Range range = ranges.of(*q);
        if (std::fabs(range.low) <= kLargestExact && std::fabs(range.high) <= kLargestExact) {
          AffineForm a;
          a.scale = scaled.scale.value_or(read::float_constant(1));
          a.q = *q;
          a.offset = scaled.offset;
          a.group = scaled.group;
          a.q_min = static_cast<int64_t>(range.low);
          a.q_max = static_cast<int64_t>(range.high);
          a.q_is_table = q->kind == Kind::table;
          facts.affine = std::move(a);
        }
      }
      facts.power_of_two_scale = scaled.scale && is_power_of_two(f, *scaled.scale);
      if (!scaled.scale && !scaled.offset) facts.values = all_values(f, scaled.value, 8);
      facts.scaled = std::move(scaled);
    }
  }
  judge_values(f, facts);
  judge_zero_point(f, facts);
  describe(f, facts);
  return facts;
}

const FieldType* plain_field(const Format& f) {
  if (f.block != 1 || f.fields.size() != 1 || f.fields[0].level != Level::block || f.fields[0].count != 1)
    return nullptr;
  if (!f.decode.body.empty() || f.decode.result.kind != RoutineExpr::Kind::field) return nullptr;
  return &f.fields[0].type;
}

int tensor_scale(const Format& f) {
  int found = -1;
  for (int k = 0; k < std::ssize(f.fields); ++k) {
    if (k == f.code_field) continue;
    if (found >= 0 || f.fields[k].level != Level::tensor || f.fields[k].count != 1 || !f.fields[k].type.is_float)
      return -1;
    found = k;
  }
  return f.code_field >= 0 && f.code ? found : -1;
}

std::optional<Scalar> plain_scalar(const Format& f) {
  const FieldType* field = plain_field(f);
  if (!field) return {};
  const FieldType& t = *field;
  if (!t.is_float || !t.has_sign || t.special != FieldType::Special::ieee) return {};
  if (t.exponent_bits == 5 && t.mantissa_bits == 10 && t.bias == 15) return Scalar::f16;
  if (t.exponent_bits != 8 || t.bias != 127) return {};
  if (t.mantissa_bits == 7) return Scalar::bf16;
  if (t.mantissa_bits == 23) return Scalar::f32;
  return {};
}

}  // namespace lumen
