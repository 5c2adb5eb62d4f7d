#include "graph/partition/linear.h"

#include <cstdint>

namespace lumen::graph {

namespace {

enum class Degree : uint8_t { zero, constant, linear, other };  // zero: the number 0, which has every degree

Degree degree_of_sum(Degree a, Degree b) {
  if (a == Degree::zero) return b;
  if (b == Degree::zero) return a;
  return a == b ? a : Degree::other;
}

Degree degree_of_product(Degree a, Degree b) {
  if (a == Degree::zero || b == Degree::zero) return Degree::zero;
  if (a == Degree::other || b == Degree::other || (a == Degree::linear && b == Degree::linear)) return Degree::other;
  return a == Degree::linear ? a : b;
}

}  // namespace

bool is_linear(const Formula& f, const std::vector<bool>& inputs) {
  std::vector<Degree> degrees;
  const auto of = [&](int node) { return degrees[node]; };
  for (const ScalarNode& n : f.nodes) {
    Degree d = Degree::constant;
    switch (n.op) {
      case ScalarOp::input:
        d = inputs[n.index] ? Degree::linear : Degree::constant;
        break;
      case ScalarOp::constant:
        d = n.real == 0 && n.integer == 0 ? Degree::zero : Degree::constant;
        break;
      case ScalarOp::add_:
      case ScalarOp::sub_:
        d = degree_of_sum(of(n.args[0]), of(n.args[1]));
        break;
      case ScalarOp::neg_:
        d = of(n.args[0]);
        break;
      case ScalarOp::mul_:
        d = degree_of_product(of(n.args[0]), of(n.args[1]));
        break;
      case ScalarOp::div_:
        d = of(n.args[1]) == Degree::constant ? of(n.args[0]) : Degree::other;
        break;
      case ScalarOp::select_:
        d = of(n.args[0]) == Degree::constant ? degree_of_sum(of(n.args[1]), of(n.args[2])) : Degree::other;
        break;
      default:
        for (const int a : n.args)
          if (a >= 0 && of(a) != Degree::constant && of(a) != Degree::zero) d = Degree::other;
        break;
    }
    degrees.push_back(d);
  }
  const Degree out = degrees[f.outputs[0]];
  return out == Degree::linear || out == Degree::zero;
}

}  // namespace lumen::graph
