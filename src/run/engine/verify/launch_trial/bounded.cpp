#include "run/engine/verify/launch_trial/bounded.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <initializer_list>
#include <limits>
#include <vector>

namespace lumen::run {
namespace {

constexpr double kUnknown = std::numeric_limits<double>::infinity();
constexpr double kUnit = 0x1p-23;                // per rounding, or several in one fused expression
constexpr double kFunctionUnits = 16 * 0x1p-24;  // for functions; times the argument if it is an exponent

// Integers in registers have 64 bits, more than a double represents.
struct Part {
  ScalarValue value;
  double error = 0;
};

double number_of(Scalar type, const ScalarValue& v) {
  return is_float(type) ? v.real : double(v.integer);
}

ScalarValue scalar_of(Scalar type, double x) {
  if (is_float(type)) return {x, 0};
  return {0, x >= 0x1p63 ? std::numeric_limits<int64_t>::max() : int64_t(x)};
}

bool is_whole_step(ScalarOp op) {
  return op == ScalarOp::floor_ || op == ScalarOp::ceil_ || op == ScalarOp::trunc_ || op == ScalarOp::rint_ ||
         op == ScalarOp::round_;
}

// Correctly rounded, or exact.
bool is_plain(ScalarOp op) {
  return op == ScalarOp::add_ || op == ScalarOp::sub_ || op == ScalarOp::mul_ || op == ScalarOp::fma_;
}

bool is_function(ScalarOp op) {
  return op == ScalarOp::div_ || op == ScalarOp::sqrt_ || op == ScalarOp::exp_ || op == ScalarOp::log_ ||
         op == ScalarOp::sin_ || op == ScalarOp::cos_ || op == ScalarOp::tanh_ || op == ScalarOp::pow_;
}

bool is_comparison(ScalarOp op) {
  return op == ScalarOp::eq_ || op == ScalarOp::ne_ || op == ScalarOp::lt_ || op == ScalarOp::le_;
}

// Error bound of a function itself, with result `r` of arguments a and b.
double function_error(ScalarOp op, double a, double b, double r) {
  switch (op) {
    case ScalarOp::exp_:
      return kFunctionUnits * std::max(1.0, std::abs(a)) * std::abs(r);
    case ScalarOp::pow_:
      return kFunctionUnits * std::max(1.0, std::abs(b * std::log(std::max(a, 1e-300)))) * std::abs(r);
    case ScalarOp::log_:
      return kFunctionUnits * std::max(1.0, std::abs(r));
    case ScalarOp::sin_:
    case ScalarOp::cos_:
      return kFunctionUnits * std::max(1.0, std::abs(a));
    case ScalarOp::tanh_:
      return kFunctionUnits;
    default:
      return kFunctionUnits * std::abs(r);
  }
}

// Error at the ends of a type's range: near its largest number a correct kernel may give infinity; below its smallest
// normal one it may give zero.
double error_at_the_ends(Scalar type, double value, double error) {
  constexpr double kSmallestNormal = 1.2e-37;
  if (!is_float(type) || type == Scalar::f64 || !std::isfinite(value)) return error;
  const double size = std::abs(value);
  if (!std::isfinite(round_to_scalar(type, size + error))) return kUnknown;
  return size < kSmallestNormal ? std::max(error, size) : error;
}

class Operation {
 public:
  Operation(const ScalarNode& node, Scalar operand_type, std::array<Part, 3> x, std::array<Scalar, 3> types)
      : node_(node), operand_type_(operand_type), x_(x), types_(types) {}

  Part result() const {
    if (node_.op == ScalarOp::select_) return selected();
    const bool exact = x_[0].error == 0 && x_[1].error == 0 && x_[2].error == 0;
    if (exact) return of_exact();
    if (is_comparison(node_.op)) return compared();
    if (types_[0] == Scalar::boolean) return logic();
    const Part r{best(), error()};
    return {r.value, std::isnan(r.error) ? kUnknown : r.error};
  }

 private:
  ScalarValue shifted(int i, double by) const {
    const ScalarValue& v = x_[i].value;
    return is_float(types_[i]) ? ScalarValue{v.real + by, 0} : ScalarValue{0, v.integer + int64_t(by)};
  }
  ScalarValue at(double a, double b, double c, bool wide) const {
    return eval_scalar_op(node_, operand_type_, shifted(0, a), shifted(1, b), shifted(2, c), wide);
  }
  // Floats are not rounded, except by conversions.
  ScalarValue best() const { return at(0, 0, 0, node_.op != ScalarOp::cast_); }
  double number(const ScalarValue& v) const { return number_of(node_.type, v); }
  double magnitude(int i) const { return std::abs(number_of(types_[i], x_[i].value)); }

  Part of_exact() const {
    const ScalarValue narrow = at(0, 0, 0, false);
    if (!is_float(node_.type)) return {narrow, 0};
    if (is_function(node_.op)) {
      const ScalarValue wide = at(0, 0, 0, true);
      if (!std::isfinite(wide.real)) return {wide, 0};
      return {wide, function_error(node_.op, number_of(types_[0], x_[0].value), number_of(types_[1], x_[1].value),
                                   wide.real)};
    }
    if (!is_plain(node_.op)) return {narrow, 0};
    const ScalarValue wide = at(0, 0, 0, true);
    if (wide.real == narrow.real || !std::isfinite(wide.real)) return {narrow, 0};
    return {wide, kUnit * std::abs(wide.real)};
  }

  Part selected() const {
    if (x_[0].error == 0) return x_[0].value.integer != 0 ? x_[1] : x_[2];
    const double apart = std::abs(number_of(types_[1], x_[1].value) - number_of(types_[2], x_[2].value));
    const double error = apart + std::max(x_[1].error, x_[2].error);
    return {x_[1].value, std::isnan(error) ? kUnknown : error};
  }

  Part compared() const {
    const double a = number_of(types_[0], x_[0].value), b = number_of(types_[1], x_[1].value);
    const bool apart = std::abs(a - b) > x_[0].error + x_[1].error;
    return {best(), apart ? 0 : kUnknown};
  }

  Part logic() const {
    const auto decides = [&](int i, int64_t value) { return x_[i].error == 0 && x_[i].value.integer == value; };
    if (node_.op == ScalarOp::and_ && (decides(0, 0) || decides(1, 0))) return {{0, 0}, 0};
    if (node_.op == ScalarOp::or_ && (decides(0, 1) || decides(1, 1))) return {{0, 1}, 0};
    return {at(0, 0, 0, true), kUnknown};
  }

  // Requires at least one inexact operand.
  double error() const {
    for (const Part& p : x_)
      if (!std::isfinite(p.error)) return kUnknown;
    const double ea = x_[0].error, eb = x_[1].error, ec = x_[2].error, r = number(best());
    if (std::isinf(r) && is_float(node_.type)) return 0;
    const double unit = is_float(node_.type) ? kUnit * std::abs(r) : 0;
    switch (node_.op) {
      case ScalarOp::add_:
      case ScalarOp::sub_:
        return ea + eb + unit;
      case ScalarOp::mul_:
        return magnitude(0) * eb + magnitude(1) * ea + ea * eb + unit;
      case ScalarOp::fma_:
        return magnitude(0) * eb + magnitude(1) * ea + ea * eb + ec + unit;
      case ScalarOp::neg_:
      case ScalarOp::abs_:
        return ea;
      case ScalarOp::min_:
      case ScalarOp::max_:
        return std::max(ea, eb);
      case ScalarOp::sin_:
      case ScalarOp::cos_:
        return std::min(ea, 2.0) + function_error(node_.op, magnitude(0), 0, r);
      case ScalarOp::div_:
        if (!is_float(node_.type) || magnitude(1) <= eb) return kUnknown;
        return corners(r) + function_error(node_.op, 0, 0, r);
      case ScalarOp::sqrt_:
        if (x_[0].value.real <= ea) return std::sqrt(x_[0].value.real + ea);
        return corners(r) + function_error(node_.op, 0, 0, r);
      default:
        break;
    }
    if (is_function(node_.op))
      return corners(r) +
             function_error(node_.op, number_of(types_[0], x_[0].value), number_of(types_[1], x_[1].value), r);
    const bool monotone = is_whole_step(node_.op) || node_.op == ScalarOp::cast_ || node_.op == ScalarOp::ldexp_ ||
                          (node_.op == ScalarOp::exponent_ && magnitude(0) > ea);
    return monotone && eb == 0 ? corners(r) : kUnknown;
  }

  // Largest deviation of results at the ends of the operands' intervals, for functions with their extremes there.
  double corners(double r) const {
    double worst = 0;
    for (const double a : {-1.0, 1.0})
      for (const double b : {-1.0, 1.0}) {
        const double there = number(at(a * x_[0].error, b * x_[1].error, 0, node_.op != ScalarOp::cast_));
        const double off = std::abs(there - r);
        if (!(off <= worst)) worst = std::isnan(off) ? kUnknown : off;
      }
    return worst;
  }

  const ScalarNode& node_;
  Scalar operand_type_;
  std::array<Part, 3> x_;
  std::array<Scalar, 3> types_;
};

}  // namespace

bool Bounded::known() const {
  return std::isfinite(value) && std::isfinite(error);
}

Bounded rounded(Scalar type, Bounded x) {
  if (!is_float(type) || type == Scalar::f64) return x;
  x.error = error_at_the_ends(type, x.value, x.error);
  if (type == Scalar::f32)
    return x.error == 0 && round_to_scalar(type, x.value) == x.value
               ? x
               : Bounded{x.value, x.error + kUnit * std::abs(x.value)};
  const double mid = round_to_scalar(type, x.value);
  if (x.error == 0 || !x.known()) return {mid, x.error};
  const double low = round_to_scalar(type, x.value - x.error), high = round_to_scalar(type, x.value + x.error);
  return {mid, std::max(std::abs(low - mid), std::abs(high - mid))};
}

Bounded bounded_formula(const Formula& f, std::span<const Bounded> inputs) {
  std::vector<Part> parts;
  parts.reserve(f.nodes.size());
  for (const ScalarNode& n : f.nodes) {
    if (n.op == ScalarOp::input) {
      parts.push_back({scalar_of(n.type, inputs[n.index].value), inputs[n.index].error});
      continue;
    }
    if (n.op == ScalarOp::constant) {
      parts.push_back({is_float(n.type) ? ScalarValue{n.real, 0} : ScalarValue{0, n.integer}, 0});
      continue;
    }
    std::array<Part, 3> x{};
    std::array<Scalar, 3> types{n.type, n.type, n.type};
    for (int i = 0; i < 3; ++i) {
      if (n.args[i] < 0) continue;
      x[i] = parts[n.args[i]];
      types[i] = f.type(n.args[i]);
    }
    const Scalar operand = n.op == ScalarOp::select_ ? types[1] : types[0];
    Part made = Operation(n, operand, x, types).result();
    made.error = error_at_the_ends(n.type, made.value.real, made.error);
    parts.push_back(made);
  }
  const int out = f.outputs.at(0);
  return {number_of(f.type(out), parts[out].value), parts[out].error};
}

}  // namespace lumen::run
