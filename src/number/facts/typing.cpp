// Promotions, conversions and constant folding of routine expressions. Must not depend on statements, names or fields.
// Proved by tests/number/reader_test.cpp.
#include "number/facts/typing.h"

#include <bit>
#include <cmath>

#include "base/check.h"

namespace lumen::read {
namespace {

bool fits(Scalar type, int64_t value) {
  switch (type) {
    case Scalar::i32:
      return value >= INT32_MIN && value <= int64_t{UINT32_MAX};  // hexadecimal bit patterns may wrap
    case Scalar::u32:
      return value >= INT32_MIN && value <= int64_t{UINT32_MAX};
    default:
      return true;
  }
}

RoutineExpr constant_of(Scalar type, const ScalarValue& v) {
  RoutineExpr e{RoutineExpr::Kind::constant, type};
  e.real = v.real;
  e.integer = v.integer;
  return e;
}

RoutineExpr fold_or_keep(RoutineExpr e) {
  if (e.args.empty()) return e;
  for (const RoutineExpr& a : e.args) {
    if (!is_constant(a)) return e;
  }
  const Scalar operand = e.args[e.op == ScalarOp::select_ ? 1 : 0].type;
  ScalarValue values[3];
  for (size_t k = 0; k < e.args.size(); ++k) values[k] = {e.args[k].real, e.args[k].integer};
  return constant_of(e.type, eval_scalar_op(ScalarNode{e.op, e.type}, operand, values[0], values[1], values[2]));
}

// Always an integral value, so conversion to an integer needs no rounding.
bool is_provably_whole(const RoutineExpr& e) {
  if (!is_float(e.type)) return true;
  if (is_constant(e)) return e.real == std::nearbyint(e.real);
  if (e.kind != RoutineExpr::Kind::op) return false;
  switch (e.op) {
    case ScalarOp::floor_:
    case ScalarOp::ceil_:
    case ScalarOp::trunc_:
    case ScalarOp::rint_:
    case ScalarOp::round_:
      return true;
    case ScalarOp::cast_:
      return is_provably_whole(e.args[0]);
    case ScalarOp::add_:
    case ScalarOp::sub_:
    case ScalarOp::mul_:
    case ScalarOp::neg_:
    case ScalarOp::abs_:
    case ScalarOp::min_:
    case ScalarOp::max_:
      for (const RoutineExpr& a : e.args) {
        if (!is_provably_whole(a)) return false;
      }
      return true;
    case ScalarOp::select_:
      return is_provably_whole(e.args[1]) && is_provably_whole(e.args[2]);
    default:
      return false;
  }
}

bool is_bitwise(std::string_view op) {
  return op == "&" || op == "|" || op == "^";
}

void unify_integers(RoutineExpr& a, RoutineExpr& b, bool bitwise, const Place& place) {
  if (is_untyped(a) && is_untyped(b)) return;
  if (is_untyped(a)) {
    a = convert_to(std::move(a), b.type, place);
    return;
  }
  if (is_untyped(b)) {
    b = convert_to(std::move(b), a.type, place);
    return;
  }
  if (a.type == b.type) return;
  const bool words = scalar_bits(a.type) <= 32 && scalar_bits(b.type) <= 32;
  if (words && bitwise) {
    a = make_cast(ScalarOp::cast_, Scalar::u32, std::move(a));
    b = make_cast(ScalarOp::cast_, Scalar::u32, std::move(b));
    return;
  }
  if (!words && a.type != Scalar::u64 && b.type != Scalar::u64) {
    a = make_cast(ScalarOp::cast_, Scalar::i64, std::move(a));
    b = make_cast(ScalarOp::cast_, Scalar::i64, std::move(b));
    return;
  }
  throw error_at(place, fmt::format("{} and {} cannot be mixed here", scalar_name(a.type), scalar_name(b.type)),
                 "take out the bits you need first, e.g. (x >> 4) & 15, or write int(x)");
}

// Unsigned words whose top bit is provably clear become i32, so that ordinary arithmetic may follow.
RoutineExpr narrow(RoutineExpr e) {
  if (e.kind != RoutineExpr::Kind::op || e.type == Scalar::i32 || !is_whole(e.type) || e.args.size() != 2) return e;
  const RoutineExpr& right = e.args[1];
  if (!is_constant(right) || right.integer < 0) return e;
  const int bits = scalar_bits(e.type);
  bool small = false;
  if (e.op == ScalarOp::and_) small = right.integer <= INT32_MAX;
  if (e.op == ScalarOp::shr_) small = !is_signed(e.type) && right.integer > bits - 32;
  if (e.op == ScalarOp::rem_) small = right.integer > 0 && right.integer <= INT32_MAX;
  return small ? make_cast(ScalarOp::cast_, Scalar::i32, std::move(e)) : e;
}

RoutineExpr compare(std::string_view op, RoutineExpr a, RoutineExpr b, const Place& place) {
  unify(a, b, place);
  if (op == "==") return make_op(ScalarOp::eq_, {std::move(a), std::move(b)});
  if (op == "!=") return make_op(ScalarOp::ne_, {std::move(a), std::move(b)});
  if (a.type == Scalar::boolean) throw error_at(place, fmt::format("'{}' compares numbers, not truth values", op));
  if (op == "<") return make_op(ScalarOp::lt_, {std::move(a), std::move(b)});
  if (op == "<=") return make_op(ScalarOp::le_, {std::move(a), std::move(b)});
  if (op == ">") return make_op(ScalarOp::lt_, {std::move(b), std::move(a)});
  return make_op(ScalarOp::le_, {std::move(b), std::move(a)});
}

RoutineExpr shift(std::string_view op, RoutineExpr a, RoutineExpr b, const Place& place) {
  if (!is_whole(a.type) || !is_whole(b.type)) throw error_at(place, fmt::format("'{}' shifts whole numbers", op));
  if (is_untyped(a) && !is_untyped(b)) a = to_run_time(std::move(a));
  if (!(is_untyped(a) && is_untyped(b)) && a.type != b.type) {
    b = is_untyped(b) ? convert_to(std::move(b), a.type, place) : make_cast(ScalarOp::cast_, a.type, std::move(b));
  }
  return narrow(make_op(op == "<<" ? ScalarOp::shl_ : ScalarOp::shr_, {std::move(a), std::move(b)}));
}

RoutineExpr power(RoutineExpr a, RoutineExpr b, const Place& place) {
  constexpr int64_t kLargest = 64;
  if (is_constant(b) && is_whole(b.type)) {
    if (b.integer < 0 || b.integer > kLargest) {
      throw error_at(place, fmt::format("exponent {} is not in 0..{}", b.integer, kLargest),
                     "write ldexp(1, n) for powers of two");
    }
    if (is_constant(a) || b.integer <= 3) {
      RoutineExpr product = is_float(a.type) ? float_constant(1) : integer_constant(1);
      for (int64_t k = 0; k < b.integer; ++k) product = binary("*", std::move(product), a, place);
      return product;
    }
  }
  return make_op(ScalarOp::pow_,
                 {convert_to(std::move(a), Scalar::f32, place), convert_to(std::move(b), Scalar::f32, place)});
}

}  // namespace

RoutineExpr integer_constant(int64_t value) {
  RoutineExpr e{RoutineExpr::Kind::constant, Scalar::i64};
  e.integer = value;
  return e;
}

RoutineExpr float_constant(double value) {
  RoutineExpr e{RoutineExpr::Kind::constant, Scalar::f32};
  e.real = round_to_scalar(Scalar::f32, value);
  return e;
}

bool is_constant(const RoutineExpr& e) {
  return e.kind == RoutineExpr::Kind::constant;
}
bool is_whole(Scalar type) {
  return !is_float(type) && type != Scalar::boolean;
}

bool same_expression(const RoutineExpr& a, const RoutineExpr& b) {
  if (a.kind != b.kind || a.type != b.type || a.slot != b.slot || a.integer != b.integer ||
      a.args.size() != b.args.size() || std::bit_cast<uint64_t>(a.real) != std::bit_cast<uint64_t>(b.real)) {
    return false;
  }
  if (a.kind == RoutineExpr::Kind::op && a.op != b.op) return false;
  for (size_t k = 0; k < a.args.size(); ++k) {
    if (!same_expression(a.args[k], b.args[k])) return false;
  }
  return true;
}

RoutineExpr make_op(ScalarOp op, std::vector<RoutineExpr> args) {
  const ScalarOpInfo& info = scalar_op_info(op);
  LUMEN_CHECK(std::ssize(args) == info.arity, "{} takes {} operands", info.name, info.arity);
  RoutineExpr e{RoutineExpr::Kind::op, Scalar::boolean};
  if (info.result != "bool") e.type = args[op == ScalarOp::select_ ? 1 : 0].type;
  e.op = op;
  e.args = std::move(args);
  return fold_or_keep(std::move(e));
}

RoutineExpr make_cast(ScalarOp op, Scalar to, RoutineExpr a) {
  if (op != ScalarOp::exponent_ && a.type == to) return a;
  RoutineExpr e{RoutineExpr::Kind::op, to};
  e.op = op;
  e.args.push_back(std::move(a));
  return fold_or_keep(std::move(e));
}

RoutineExpr to_run_time(RoutineExpr e) {
  if (!is_untyped(e)) return e;
  if (e.integer >= INT32_MIN && e.integer <= INT32_MAX)
    e.type = Scalar::i32;
  else if (e.integer >= 0 && e.integer <= int64_t{UINT32_MAX})
    e.type = Scalar::u32;
  return e;
}

RoutineExpr convert_to(RoutineExpr e, Scalar to, const Place& place) {
  if (e.type == to) return e;
  if (to == Scalar::boolean) return to_boolean(std::move(e), place);
  if (e.type == Scalar::boolean) {
    throw error_at(place, "a truth value is used where a number is needed", "write int(c), or select(c, a, b)");
  }
  if (is_untyped(e) && !is_float(to) && !fits(to, e.integer)) {
    throw error_at(place, fmt::format("{} does not fit {}", e.integer, scalar_name(to)));
  }
  if (is_float(e.type) && !is_float(to)) {
    throw error_at(place, fmt::format("a {} is used where a whole number is needed", scalar_name(e.type)),
                   "write int(x) (towards zero) or int(rint(x))");
  }
  return make_cast(ScalarOp::cast_, to, std::move(e));
}

RoutineExpr to_integer(RoutineExpr e, Scalar to, const Place& place) {
  if (e.type == Scalar::boolean) return make_cast(ScalarOp::cast_, to, std::move(e));
  if (!is_float(e.type)) return convert_to(std::move(e), to, place);
  if (!is_provably_whole(e)) e = make_op(ScalarOp::rint_, {std::move(e)});
  return make_cast(ScalarOp::cast_, to, std::move(e));
}

RoutineExpr to_boolean(RoutineExpr e, const Place& place) {
  if (e.type == Scalar::boolean) return e;
  throw error_at(place, "a number is used where a truth value is needed", "write x != 0");
}

void unify(RoutineExpr& a, RoutineExpr& b, const Place& place) {
  if ((a.type == Scalar::boolean) != (b.type == Scalar::boolean)) {
    throw error_at(place, "a truth value and a number cannot be mixed", "write int(c) to count truth values");
  }
  if (is_float(a.type) || is_float(b.type)) {
    a = convert_to(std::move(a), Scalar::f32, place);
    b = convert_to(std::move(b), Scalar::f32, place);
  } else if (a.type != Scalar::boolean) {
    unify_integers(a, b, false, place);
  }
}

RoutineExpr unary(std::string_view op, RoutineExpr a, const Place& place) {
  if (op == "not") return make_op(ScalarOp::not_, {to_boolean(std::move(a), place)});
  if (a.type == Scalar::boolean) throw error_at(place, fmt::format("'{}' of a truth value", op), "write 'not'");
  if (op == "-") return make_op(ScalarOp::neg_, {std::move(a)});
  if (op == "~") {
    if (is_float(a.type)) throw error_at(place, "'~' flips the bits of whole numbers", "write bits(x) first");
    return make_op(ScalarOp::not_, {std::move(a)});
  }
  throw error_at(place, fmt::format("operator '{}' has no meaning here", op));
}

RoutineExpr binary(std::string_view op, RoutineExpr a, RoutineExpr b, const Place& place) {
  if (op == "and" || op == "or") {
    return make_op(op == "and" ? ScalarOp::and_ : ScalarOp::or_,
                   {to_boolean(std::move(a), place), to_boolean(std::move(b), place)});
  }
  if (op == "==" || op == "!=" || op == "<" || op == "<=" || op == ">" || op == ">=") {
    return compare(op, std::move(a), std::move(b), place);
  }
  if (op == "<<" || op == ">>") return shift(op, std::move(a), std::move(b), place);
  if (a.type == Scalar::boolean || b.type == Scalar::boolean) {
    throw error_at(place, fmt::format("'{}' of truth values", op), "write 'and', 'or', or int(c) to count");
  }
  if (op == "**") return power(std::move(a), std::move(b), place);
  if (is_bitwise(op)) {
    if (is_float(a.type) || is_float(b.type)) {
      throw error_at(place, fmt::format("'{}' combines the bits of whole numbers", op),
                     "write bits(x) or int(x) first");
    }
    unify_integers(a, b, true, place);
    const ScalarOp which = op == "&" ? ScalarOp::and_ : op == "|" ? ScalarOp::or_ : ScalarOp::xor_;
    if (which == ScalarOp::and_ && is_constant(a)) std::swap(a, b);
    return narrow(make_op(which, {std::move(a), std::move(b)}));
  }
  unify(a, b, place);
  if (op == "+") return make_op(ScalarOp::add_, {std::move(a), std::move(b)});
  if (op == "-") return make_op(ScalarOp::sub_, {std::move(a), std::move(b)});
  if (op == "*") return make_op(ScalarOp::mul_, {std::move(a), std::move(b)});
  if (op == "/" || op == "%") {
    if (is_constant(b) && is_whole(b.type) && b.integer == 0) throw error_at(place, "division by zero");
    if (op == "/") return make_op(ScalarOp::div_, {std::move(a), std::move(b)});
    if (is_float(a.type)) throw error_at(place, "'%' needs whole numbers", "write a - floor(a / b) * b");
    return narrow(make_op(ScalarOp::rem_, {std::move(a), std::move(b)}));
  }
  throw error_at(place, fmt::format("operator '{}' has no meaning in a format", op));
}

}  // namespace lumen::read
