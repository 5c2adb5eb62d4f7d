#include "graph/equivalence/degree.h"

#include <algorithm>

namespace lumen::graph {

namespace {

constexpr int kEvery = 1000;  // of the constant 0
constexpr int kNone = -1000;

class Degrees {
 public:
  Degrees(const Formula& f, const DegreeQuestion& q) : f_(f), q_(q), uses_(f.nodes.size(), 0) {
    for (const ScalarNode& n : f.nodes)
      for (const int a : n.args)
        if (a >= 0) ++uses_[a];
    found_.offsets.assign(f.inputs.size(), 0);
  }

  std::optional<Degree> run() {
    of_.reserve(f_.nodes.size());
    for (const ScalarNode& n : f_.nodes) of_.push_back(degree(n));
    found_.degree = of_[f_.outputs[0]];
    if (found_.degree == kNone) return std::nullopt;
    if (found_.degree == kEvery) found_.degree = 0;
    return found_;
  }

 private:
  static int same(int a, int b) {
    if (a == kNone || b == kNone) return kNone;
    if (a == kEvery) return b;
    return b == kEvery || a == b ? a : kNone;
  }
  static int sum(int a, int b) {
    if (a == kNone || b == kNone) return kNone;
    return a == kEvery || b == kEvery ? kEvery : a + b;
  }
  static bool is_zero(const ScalarNode& n) {
    return n.op == ScalarOp::constant && (is_float(n.type) ? n.real == 0 : n.integer == 0);
  }

  // input + constant, if the whole is scaled.
  bool shifted(const ScalarNode& n) {
    if (q_.shiftable.empty()) return false;
    for (const int side : {0, 1}) {
      const ScalarNode &x = f_.nodes[n.args[side]], &c = f_.nodes[n.args[1 - side]];
      if (x.op != ScalarOp::input || c.op != ScalarOp::constant || uses_[n.args[side]] != 1) continue;
      if (!q_.scaled[x.index] || !q_.shiftable[x.index] || (n.op == ScalarOp::sub_ && side == 1)) continue;
      found_.offsets[x.index] = n.op == ScalarOp::sub_ ? -c.real : c.real;
      return true;
    }
    return false;
  }

  int degree(const ScalarNode& n) {
    const auto arg = [&](int i) { return of_[n.args[i]]; };
    switch (n.op) {
      case ScalarOp::input:
        return q_.scaled[n.index] ? 1 : 0;
      case ScalarOp::constant:
        return is_zero(n) ? kEvery : 0;
      case ScalarOp::add_:
      case ScalarOp::sub_:
        return shifted(n) ? 1 : same(arg(0), arg(1));
      case ScalarOp::mul_:
        return sum(arg(0), arg(1));
      case ScalarOp::div_:
        if (arg(1) == kEvery || arg(1) == kNone || (q_.linear && arg(1) != 0)) return kNone;
        return sum(arg(0), -arg(1));
      case ScalarOp::neg_:
        return arg(0);
      case ScalarOp::fma_:
        return same(sum(arg(0), arg(1)), arg(2));
      case ScalarOp::select_:
        return arg(0) == 0 || arg(0) == kEvery ? same(arg(1), arg(2)) : kNone;
      default:
        return positive(n);
    }
  }

  // Operations that are homogeneous only for positive factors (abs, min, max, sqrt, comparisons), and those that are
  // not.
  int positive(const ScalarNode& n) const {
    bool plain = true;
    for (const int a : n.args) plain = plain && (a < 0 || of_[a] == 0 || of_[a] == kEvery);
    if (plain) return 0;
    if (q_.linear) return kNone;
    const int a = of_[n.args[0]];
    switch (n.op) {
      case ScalarOp::abs_:
        return a;
      case ScalarOp::min_:
      case ScalarOp::max_:
        return same(a, of_[n.args[1]]);
      case ScalarOp::sqrt_:
        return a == kNone || a % 2 != 0 ? kNone : a / 2;
      case ScalarOp::eq_:
      case ScalarOp::ne_:
      case ScalarOp::lt_:
      case ScalarOp::le_:
        return same(a, of_[n.args[1]]) == kNone ? kNone : 0;
      default:
        return kNone;
    }
  }

  const Formula& f_;
  const DegreeQuestion& q_;
  std::vector<int> uses_, of_;
  Degree found_;
};

}  // namespace

std::optional<Degree> degree_of(const Formula& f, const DegreeQuestion& question) {
  return Degrees(f, question).run();
}

bool is_square(const Formula& f, int slot) {
  const ScalarNode& out = f.nodes[f.outputs[0]];
  if (out.op != ScalarOp::mul_ || out.args[0] != out.args[1]) return false;
  const ScalarNode& x = f.nodes[out.args[0]];
  return x.op == ScalarOp::input && x.index == slot;
}

}  // namespace lumen::graph
