// Exact rewrites of formulas (every bit of every result is preserved, except NaN payloads) and composition. Must not
// depend on tensors, loops or formats. Proved by tests/number/formula/formula_test.cpp on random formulas.
#include <cmath>
#include <optional>

#include "base/check.h"
#include "number/formula/formula.h"

namespace lumen {
namespace {

// Copies nodes of one formula into another through the builders, which number values and fold constants.
int rebuild(Formula& to, const ScalarNode& node, const std::vector<int>& moved) {
  int args[3] = {-1, -1, -1};
  for (int k = 0; k < 3; ++k) {
    if (node.args[k] >= 0) args[k] = moved[node.args[k]];
  }
  switch (node.op) {
    case ScalarOp::input:
      return to.input(node.index);
    case ScalarOp::constant:
      return is_float(node.type) ? to.constant(node.type, node.real) : to.integer(node.type, node.integer);
    case ScalarOp::cast_:
    case ScalarOp::bitcast_:
    case ScalarOp::exponent_:
      return to.convert(node.op, node.type, args[0]);
    default:
      return to.op(node.op, args[0], args[1], args[2]);
  }
}

const ScalarNode* constant_at(const Formula& f, int node) {
  const ScalarNode& n = f.nodes[node];
  return n.op == ScalarOp::constant ? &n : nullptr;
}

bool is_number(const ScalarNode* n, double value) {
  if (!n) return false;
  if (!is_float(n->type)) return n->integer == value;
  return n->real == value && std::signbit(n->real) == std::signbit(value);
}

// Integral-valued results need no further rounding to an integer.
bool is_integral(const Formula& f, int node) {
  const ScalarNode& n = f.nodes[node];
  switch (n.op) {
    case ScalarOp::floor_:
    case ScalarOp::ceil_:
    case ScalarOp::trunc_:
    case ScalarOp::rint_:
    case ScalarOp::round_:
      return true;
    case ScalarOp::cast_:
      return !is_float(f.type(n.args[0]));
    default:
      return false;
  }
}

// Whether `to` represents every number of `from`, so that a round trip changes none.
bool holds_all(Scalar to, Scalar from) {
  if (from == Scalar::boolean || to == Scalar::boolean) return false;
  const int wide = scalar_bits(to), narrow = scalar_bits(from);
  if (is_float(to) != is_float(from)) return false;
  if (is_float(to)) return wide > narrow && wide >= 32;
  return is_signed(to) == is_signed(from) && wide > narrow;
}

// Division by 2^k equals multiplication by 2^-k when the latter is a normal number.
std::optional<double> exact_reciprocal(const ScalarNode* n) {
  if (!n || !is_float(n->type) || n->real == 0 || !std::isfinite(n->real)) return std::nullopt;
  int exponent = 0;
  if (std::fabs(std::frexp(n->real, &exponent)) != 0.5) return std::nullopt;
  const int lowest = n->type == Scalar::f16 ? -14 : n->type == Scalar::f64 ? -1022 : -126;
  if (1 - exponent < lowest || 1 - exponent > -lowest) return std::nullopt;
  return 1.0 / n->real;
}

// A simpler node of `f` with the same value, or -1.
int simpler_binary(Formula& f, ScalarOp op, int a, int b) {
  const ScalarNode* left = constant_at(f, a);
  const ScalarNode* right = constant_at(f, b);
  const Scalar type = f.type(a);
  const bool whole = !is_float(type) && type != Scalar::boolean;
  switch (op) {
    case ScalarOp::add_:
      // x + 0 turns -0 into 0; only -0 is neutral for floats.
      if (is_number(right, whole ? 0.0 : -0.0)) return a;
      if (is_number(left, whole ? 0.0 : -0.0)) return b;
      return -1;
    case ScalarOp::sub_:
      if (is_number(right, 0.0)) return a;
      if (whole && a == b) return f.integer(type, 0);
      return -1;
    case ScalarOp::mul_:
      if (is_number(right, 1.0)) return a;
      if (is_number(left, 1.0)) return b;
      if (whole && (is_number(left, 0.0) || is_number(right, 0.0))) return f.integer(type, 0);
      if (!whole && is_number(right, -1.0)) return f.op(ScalarOp::neg_, a);
      if (!whole && is_number(left, -1.0)) return f.op(ScalarOp::neg_, b);
      return -1;
    case ScalarOp::div_:
      if (is_number(right, 1.0)) return a;
      if (const auto r = exact_reciprocal(right)) return f.op(ScalarOp::mul_, a, f.constant(type, *r));
      return -1;
    case ScalarOp::and_:
    case ScalarOp::or_:
      if (a == b) return a;
      if (op == ScalarOp::or_ && is_number(right, 0.0)) return a;
      if (op == ScalarOp::or_ && is_number(left, 0.0)) return b;
      if (op == ScalarOp::and_ && is_number(right, 0.0)) return b;
      if (op == ScalarOp::and_ && is_number(left, 0.0)) return a;
      if (type == Scalar::boolean && is_number(right, 1.0)) return op == ScalarOp::and_ ? a : b;
      if (type == Scalar::boolean && is_number(left, 1.0)) return op == ScalarOp::and_ ? b : a;
      return -1;
    case ScalarOp::xor_:
      if (is_number(right, 0.0)) return a;
      if (is_number(left, 0.0)) return b;
      return -1;
    case ScalarOp::shl_:
    case ScalarOp::shr_:
      if (is_number(right, 0.0)) return a;
      return -1;
    case ScalarOp::min_:
    case ScalarOp::max_:
      return a == b ? a : -1;
    default:
      return -1;
  }
}

int simpler_unary(Formula& f, const ScalarNode& node) {
  const int a = node.args[0];
  const ScalarNode inner = f.nodes[a];
  switch (node.op) {
    case ScalarOp::neg_:
      return inner.op == ScalarOp::neg_ ? inner.args[0] : -1;
    case ScalarOp::not_:
      return inner.op == ScalarOp::not_ ? inner.args[0] : -1;
    case ScalarOp::abs_:
      if (inner.op == ScalarOp::abs_) return a;
      if (inner.op == ScalarOp::neg_ && is_float(inner.type)) return f.op(ScalarOp::abs_, inner.args[0]);
      return -1;
    case ScalarOp::floor_:
    case ScalarOp::ceil_:
    case ScalarOp::trunc_:
    case ScalarOp::rint_:
    case ScalarOp::round_:
      return is_integral(f, a) ? a : -1;
    case ScalarOp::cast_:
      // To a wider type and back.
      if (inner.op != ScalarOp::cast_ || f.type(inner.args[0]) != node.type) return -1;
      return holds_all(inner.type, node.type) ? inner.args[0] : -1;
    case ScalarOp::bitcast_:
      // A round trip through bits stays: it marks a value as having no derivative (gradient.h).
      if (inner.op == ScalarOp::bitcast_ && f.type(inner.args[0]) != node.type) {
        return f.convert(ScalarOp::bitcast_, node.type, inner.args[0]);
      }
      return -1;
    default:
      return -1;
  }
}

int simpler(Formula& f, int number) {
  const ScalarNode node = f.nodes[number];
  int result = -1;
  if (node.op == ScalarOp::select_) {
    if (const ScalarNode* c = constant_at(f, node.args[0])) return c->integer ? node.args[1] : node.args[2];
    if (node.args[1] == node.args[2]) return node.args[1];
    const ScalarNode condition = f.nodes[node.args[0]];
    if (condition.op == ScalarOp::not_) {
      result = f.op(ScalarOp::select_, condition.args[0], node.args[2], node.args[1]);
    }
  } else if (scalar_op_info(node.op).arity == 2 && scalar_op_info(node.op).result == "same" &&
             node.op != ScalarOp::ldexp_) {
    result = simpler_binary(f, node.op, node.args[0], node.args[1]);
  } else if (scalar_op_info(node.op).arity == 1) {
    result = simpler_unary(f, node);
  }
  return result < 0 ? number : result;
}

// Dead code elimination: keeps only the nodes that the outputs need, in order.
Formula drop_dead(const Formula& f) {
  std::vector<bool> live(f.nodes.size(), false);
  for (int output : f.outputs) live[output] = true;
  for (size_t i = f.nodes.size(); i-- > 0;) {
    if (!live[i]) continue;
    for (int argument : f.nodes[i].args) {
      if (argument >= 0) live[argument] = true;
    }
  }
  Formula result;
  result.inputs = f.inputs;
  std::vector<int> moved(f.nodes.size(), -1);
  for (size_t i = 0; i < f.nodes.size(); ++i) {
    if (live[i]) moved[i] = rebuild(result, f.nodes[i], moved);
  }
  for (int output : f.outputs) result.outputs.push_back(moved[output]);
  return result;
}

}  // namespace

Formula simplify_formula(const Formula& f) {
  Formula result;
  result.inputs = f.inputs;
  std::vector<int> moved(f.nodes.size(), -1);
  for (size_t i = 0; i < f.nodes.size(); ++i) {
    moved[i] = simpler(result, rebuild(result, f.nodes[i], moved));
  }
  for (int output : f.outputs) result.outputs.push_back(moved[output]);
  return drop_dead(result);
}

Formula compose(const Formula& outer, int slot, const Formula& inner, int k) {
  LUMEN_CHECK(slot >= 0 && slot < std::ssize(outer.inputs), "slot {}", slot);
  LUMEN_CHECK(k >= 0 && k < std::ssize(inner.outputs), "output {}", k);
  const int replaced = inner.outputs[k];
  LUMEN_CHECK(inner.type(replaced) == outer.inputs[slot], "types differ");
  Formula result;
  for (size_t i = 0; i < outer.inputs.size(); ++i) {
    if (static_cast<int>(i) != slot) result.inputs.push_back(outer.inputs[i]);
  }
  const int shift = result.inputs.size();
  result.inputs.insert(result.inputs.end(), inner.inputs.begin(), inner.inputs.end());
  std::vector<int> inner_moved(inner.nodes.size(), -1);
  for (size_t i = 0; i < inner.nodes.size(); ++i) {
    ScalarNode node = inner.nodes[i];
    if (node.op == ScalarOp::input) node.index += shift;
    inner_moved[i] = rebuild(result, node, inner_moved);
  }
  std::vector<int> moved(outer.nodes.size(), -1);
  for (size_t i = 0; i < outer.nodes.size(); ++i) {
    ScalarNode node = outer.nodes[i];
    if (node.op == ScalarOp::input && node.index == slot) {
      moved[i] = inner_moved[replaced];
      continue;
    }
    if (node.op == ScalarOp::input && node.index > slot) --node.index;
    moved[i] = rebuild(result, node, moved);
  }
  for (int output : outer.outputs) result.outputs.push_back(moved[output]);
  return result;
}

}  // namespace lumen
