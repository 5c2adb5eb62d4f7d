// The table of scalar operations and the builder of formulas: value numbering and constant folding. Must not depend on
// tensors, loops or formats. Proved by tests/number/formula/formula_test.cpp.
#include "number/formula/formula.h"

#include <array>
#include <bit>
#include <cmath>
#include <limits>
#include <utility>

#include "base/check.h"

namespace lumen {
namespace {

constexpr bool yes = true;
constexpr bool no = false;

constexpr std::array kInfo = {
#define X(name, arity, domain, result, commutative, text) ScalarOpInfo{#name, arity, #domain, #result, commutative},
#include "number/formula/formula.def"
#undef X
    ScalarOpInfo{"input", 0, "any", "same", no},
    ScalarOpInfo{"const", 0, "any", "same", no},
};

int add_node(Formula& f, ScalarNode node) {
  const int arity = scalar_op_info(node.op).arity;
  if (scalar_op_info(node.op).commutative && node.args[0] > node.args[1]) std::swap(node.args[0], node.args[1]);
  if (arity > 0) {
    bool constant = true;
    ScalarValue values[3];
    for (int k = 0; k < arity; ++k) {
      const ScalarNode& arg = f.nodes[node.args[k]];
      constant = constant && arg.op == ScalarOp::constant;
      values[k] = {arg.real, arg.integer};
    }
    const Scalar operand = f.type(node.args[node.op == ScalarOp::select_ ? 1 : 0]);
    if (constant) {
      const ScalarValue v = eval_scalar_op(node, operand, values[0], values[1], values[2]);
      return is_float(node.type) ? f.constant(node.type, v.real) : f.integer(node.type, v.integer);
    }
  }
  for (size_t i = 0; i < f.nodes.size(); ++i) {
    if (f.nodes[i] == node) return i;
  }
  f.nodes.push_back(node);
  return f.nodes.size() - 1;
}

void check_argument(const Formula& f, ScalarOp op, int argument) {
  LUMEN_CHECK(argument >= 0 && argument < std::ssize(f.nodes), "argument {} of {}", argument, scalar_op_info(op).name);
}

}  // namespace

bool operator==(const ScalarNode& a, const ScalarNode& b) {
  return a.op == b.op && a.type == b.type && a.args[0] == b.args[0] && a.args[1] == b.args[1] &&
         a.args[2] == b.args[2] && a.index == b.index && a.integer == b.integer &&
         std::bit_cast<uint64_t>(a.real) == std::bit_cast<uint64_t>(b.real);
}

const ScalarOpInfo& scalar_op_info(ScalarOp op) {
  const auto number = static_cast<size_t>(op);
  LUMEN_CHECK(number < kInfo.size(), "scalar op {}", number);
  return kInfo[number];
}

std::optional<ScalarOp> scalar_op_from_name(std::string_view name) {
  for (size_t i = 0; i < kInfo.size(); ++i) {
    if (kInfo[i].name == name) return static_cast<ScalarOp>(i);
  }
  return std::nullopt;
}

int Formula::input(int index) {
  LUMEN_CHECK(index >= 0 && index < std::ssize(inputs), "input {} of {}", index, inputs.size());
  ScalarNode node{ScalarOp::input, inputs[index]};
  node.index = index;
  return add_node(*this, node);
}

int Formula::constant(Scalar type, double value) {
  if (!is_float(type)) return integer(type, static_cast<int64_t>(value));
  ScalarNode node{ScalarOp::constant, type};
  node.real = std::isnan(value) ? std::numeric_limits<double>::quiet_NaN() : round_to_scalar(type, value);
  return add_node(*this, node);
}

int Formula::integer(Scalar type, int64_t value) {
  if (is_float(type)) return constant(type, value);
  ScalarNode node{ScalarOp::constant, type};
  node.integer = wrap_to_scalar(type, value);
  return add_node(*this, node);
}

int Formula::op(ScalarOp op, int a, int b, int c) {
  const ScalarOpInfo& info = scalar_op_info(op);
  LUMEN_CHECK(info.arity > 0 && info.result != "cast", "{} has no type of its own", info.name);
  ScalarNode node{op, Scalar::f32};
  const int given[3] = {a, b, c};
  for (int k = 0; k < info.arity; ++k) {
    check_argument(*this, op, given[k]);
    node.args[k] = given[k];
  }
  node.type = info.result == "bool" ? Scalar::boolean : type(op == ScalarOp::select_ ? b : a);
  if (auto mistake = scalar_op_mistake(node, *this)) LUMEN_UNREACHABLE("{}", *mistake);
  return add_node(*this, node);
}

int Formula::convert(ScalarOp op, Scalar to, int a) {
  check_argument(*this, op, a);
  ScalarNode node{op, to};
  node.args[0] = a;
  if (auto mistake = scalar_op_mistake(node, *this)) LUMEN_UNREACHABLE("{}", *mistake);
  if (op != ScalarOp::exponent_ && type(a) == to) return a;
  return add_node(*this, node);
}

std::optional<std::string> scalar_op_mistake(const ScalarNode& node, const Formula& f) {
  const ScalarOpInfo& info = scalar_op_info(node.op);
  if (node.op == ScalarOp::input) {
    if (node.index < 0 || node.index >= std::ssize(f.inputs)) return fmt::format("no input {}", node.index);
    if (f.inputs[node.index] != node.type) return fmt::format("input {} has another type", node.index);
    return std::nullopt;
  }
  if (node.op == ScalarOp::constant) return std::nullopt;
  Scalar types[3] = {};
  for (int k = 0; k < info.arity; ++k) types[k] = f.type(node.args[k]);
  const Scalar first = types[0];
  if (node.op == ScalarOp::select_) {
    if (first != Scalar::boolean) return "select needs a truth value first";
    if (types[1] != types[2])
      return fmt::format("select between {} and {}", scalar_name(types[1]), scalar_name(types[2]));
    if (node.type != types[1]) return "select has the type of its choices";
    return std::nullopt;
  }
  if (node.op == ScalarOp::ldexp_) {
    if (!is_float(first) || types[1] != Scalar::i32) return "ldexp needs a float and an i32";
    if (node.type != first) return "ldexp has the type of its first operand";
    return std::nullopt;
  }
  for (int k = 1; k < info.arity; ++k) {
    if (types[k] != first) {
      return fmt::format("{} of {} and {}", info.name, scalar_name(first), scalar_name(types[k]));
    }
  }
  const bool truth = first == Scalar::boolean;
  if (info.domain == "flt" && !is_float(first))
    return fmt::format("{} needs floats, not {}", info.name, scalar_name(first));
  if (info.domain == "int" && is_float(first))
    return fmt::format("{} needs integers, not {}", info.name, scalar_name(first));
  if (info.domain == "num" && truth) return fmt::format("{} needs numbers, not truth values", info.name);
  const bool logical =
      node.op == ScalarOp::and_ || node.op == ScalarOp::or_ || node.op == ScalarOp::xor_ || node.op == ScalarOp::not_;
  if (info.domain == "int" && truth && !logical) return fmt::format("{} needs integers, not truth values", info.name);
  if (info.result == "bool" && node.type != Scalar::boolean) return fmt::format("{} yields a truth value", info.name);
  if (info.result == "same" && node.type != first) return fmt::format("{} has the type of its operands", info.name);
  if (node.op == ScalarOp::exponent_) {
    if (!is_float(first) || node.type != Scalar::i32) return "exponent takes a float and yields i32";
  }
  if (node.op == ScalarOp::bitcast_ && scalar_bits(first) != scalar_bits(node.type)) {
    return fmt::format("bitcast from {} to {}", scalar_name(first), scalar_name(node.type));
  }
  return std::nullopt;
}

void verify_formula(const Formula& f) {
  for (size_t i = 0; i < f.nodes.size(); ++i) {
    const ScalarNode& node = f.nodes[i];
    const int arity = scalar_op_info(node.op).arity;
    for (int k = 0; k < 3; ++k) {
      const bool used = k < arity;
      LUMEN_CHECK(used ? node.args[k] >= 0 && node.args[k] < static_cast<int>(i) : node.args[k] == -1,
                  "argument {} of node {} ({}) is {}", k, i, scalar_op_info(node.op).name, node.args[k]);
    }
    const auto mistake = scalar_op_mistake(node, f);
    LUMEN_CHECK(!mistake, "node {}: {}", i, *mistake);
  }
  for (int output : f.outputs) {
    LUMEN_CHECK(output >= 0 && output < std::ssize(f.nodes), "output %{}", output);
  }
}

}  // namespace lumen
