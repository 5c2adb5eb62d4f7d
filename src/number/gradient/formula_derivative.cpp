// Symbolic derivatives of formulas in forward mode from one input: one rule per operation. Must not depend on tensors
// or training. Proved by tests/number/formula/formula_test.cpp (finite differences in double precision).
#include <optional>

#include "base/check.h"
#include "number/formula/formula.h"
#include "number/gradient/gradient.h"

namespace lumen {
namespace {

// The differential of each node; -1 means zero.
class Differential {
 public:
  Differential(const Formula& f, int slot, bool straight_through)
      : result_(f), slot_(slot), straight_through_(straight_through) {
    result_.outputs.clear();
    const size_t count = f.nodes.size();
    by_node_.assign(count, -1);
    for (size_t i = 0; i < count; ++i) {
      // Builders append to result_.nodes; the first `count` stay where they are.
      const ScalarNode node = result_.nodes[i];
      by_node_[i] = rule(i, node);
    }
  }

  Formula take(int output) {
    const int d = by_node_[output];
    result_.outputs = {d >= 0 ? d : result_.constant(result_.type(output), 0.0)};
    return simplify_formula(result_);
  }

 private:
  int of(int node) const { return node < 0 ? -1 : by_node_[node]; }
  int constant(int like, double value) { return result_.constant(result_.type(like), value); }
  int op(ScalarOp which, int a, int b = -1, int c = -1) { return result_.op(which, a, b, c); }
  int times(int d, int factor) { return d < 0 ? -1 : op(ScalarOp::mul_, d, factor); }
  int sum(int d, int e) { return d < 0 ? e : e < 0 ? d : op(ScalarOp::add_, d, e); }
  int negative(int d) { return d < 0 ? -1 : op(ScalarOp::neg_, d); }
  int choose(int condition, int d, int e, int like) {
    if (d < 0 && e < 0) return -1;
    return op(ScalarOp::select_, condition, d < 0 ? constant(like, 0) : d, e < 0 ? constant(like, 0) : e);
  }

  int rule(int y, const ScalarNode& node) {
    if (node.op == ScalarOp::input) {
      return node.index == slot_ && is_float(node.type) ? result_.constant(node.type, 1.0) : -1;
    }
    const int a = node.args[0], b = node.args[1], c = node.args[2];
    const int da = of(a), db = of(b), dc = of(c);
    if (straight_through_ && node.op == ScalarOp::cast_) return through_cast(node.type, da);
    if (!is_float(node.type)) {
      if (!straight_through_) return -1;
      return integer_rule(node, a, b, da, db, dc);
    }
    if (da < 0 && db < 0 && dc < 0) return -1;
    switch (node.op) {
      case ScalarOp::add_:
        return sum(da, db);
      case ScalarOp::sub_:
        return sum(da, negative(db));
      case ScalarOp::mul_:
        return sum(times(da, b), times(db, a));
      case ScalarOp::div_: {
        const int rest = negative(times(db, y));
        return op(ScalarOp::div_, sum(da, rest), b);
      }
      case ScalarOp::neg_:
        return negative(da);
      case ScalarOp::abs_: {
        const int zero = constant(a, 0);
        const int positive = choose(op(ScalarOp::lt_, zero, a), da, -1, a);
        return choose(op(ScalarOp::lt_, a, zero), negative(da), positive, a);
      }
      case ScalarOp::min_:
      case ScalarOp::max_:
        return bound(node.op, a, b, da, db);
      case ScalarOp::floor_:
      case ScalarOp::ceil_:
      case ScalarOp::trunc_:
      case ScalarOp::rint_:
      case ScalarOp::round_:
        return straight_through_ ? da : -1;
      case ScalarOp::sqrt_:
        return op(ScalarOp::div_, times(da, constant(a, 0.5)), y);
      case ScalarOp::exp_:
        return times(da, y);
      case ScalarOp::log_:
        return op(ScalarOp::div_, da, a);
      case ScalarOp::sin_:
        return times(da, op(ScalarOp::cos_, a));
      case ScalarOp::cos_:
        return negative(times(da, op(ScalarOp::sin_, a)));
      case ScalarOp::tanh_:
        return times(da, op(ScalarOp::sub_, constant(a, 1), op(ScalarOp::mul_, y, y)));
      case ScalarOp::pow_:
        return power(y, a, b, da, db);
      case ScalarOp::ldexp_:
        return da < 0 ? -1 : op(ScalarOp::ldexp_, da, b);
      case ScalarOp::fma_:
        return sum(sum(times(da, b), times(db, a)), dc);
      case ScalarOp::select_:
        return choose(a, db, dc, b);
      case ScalarOp::cast_:
        return da < 0 ? -1 : result_.convert(ScalarOp::cast_, node.type, da);
      default:
        return -1;  // exponent, bitcast and comparisons have derivative zero almost everywhere
    }
  }

  // The differential of the selected operand. In straight-through mode, a value equal to its bound still passes the
  // gradient: rounding puts many codes exactly on the bound, and these were not clipped.
  int bound(ScalarOp which, int a, int b, int da, int db) {
    if (da < 0 && db < 0) return -1;
    const int like = da < 0 ? db : da;
    const bool first_passes_ties = straight_through_ && db < 0;
    const int left = which == ScalarOp::min_ ? a : b;
    const int right = which == ScalarOp::min_ ? b : a;
    return choose(op(first_passes_ties ? ScalarOp::le_ : ScalarOp::lt_, left, right), da, db, like);
  }

  // a^b: b a^(b-1) da + a^b log(a) db, the second only where a > 0.
  int power(int y, int a, int b, int da, int db) {
    int d = -1;
    if (da >= 0) {
      const int lower = op(ScalarOp::pow_, a, op(ScalarOp::sub_, b, constant(b, 1)));
      d = times(times(da, b), lower);
    }
    if (db >= 0) {
      const int inside = times(times(db, y), op(ScalarOp::log_, a));
      d = sum(d, choose(op(ScalarOp::lt_, constant(a, 0), a), inside, -1, a));
    }
    return d;
  }

  // Straight-through mode only: a rounded integer carries the float differential of the value before rounding.
  int through_cast(Scalar to, int da) {
    if (da < 0) return -1;
    const Scalar type = is_float(to) ? to : result_.type(da);
    return result_.convert(ScalarOp::cast_, type, da);
  }
  int integer_rule(const ScalarNode& node, int a, int b, int da, int db, int dc) {
    if (da < 0 && db < 0 && dc < 0) return -1;
    auto as_float = [&](int n) {
      const Scalar type = result_.type(da >= 0 ? da : db >= 0 ? db : dc);
      return result_.convert(ScalarOp::cast_, type, n);
    };
    auto pick = [&](int condition, int d, int e) {
      if (d < 0 && e < 0) return -1;
      const int like = d < 0 ? e : d;
      return choose(condition, d, e, like);
    };
    switch (node.op) {
      case ScalarOp::add_:
        return sum(da, db);
      case ScalarOp::sub_:
        return sum(da, negative(db));
      case ScalarOp::neg_:
        return negative(da);
      case ScalarOp::mul_:
        return sum(da < 0 ? -1 : times(da, as_float(b)), db < 0 ? -1 : times(db, as_float(a)));
      case ScalarOp::min_:
      case ScalarOp::max_:
        return bound(node.op, a, b, da, db);
      case ScalarOp::select_:
        return pick(a, db, dc);
      default:
        return -1;
    }
  }

  Formula result_;
  int slot_;
  bool straight_through_;
  std::vector<int> by_node_;
};

Formula differentiate(const Formula& f, int k, int slot, bool straight_through) {
  LUMEN_CHECK(k >= 0 && k < std::ssize(f.outputs), "output {}", k);
  LUMEN_CHECK(slot >= 0 && slot < std::ssize(f.inputs), "input {}", slot);
  const int output = f.outputs[k];
  LUMEN_CHECK(is_float(f.type(output)), "derivative of a {}", scalar_name(f.type(output)));
  return Differential(f, slot, straight_through).take(output);
}

}  // namespace

Formula derivative(const Formula& f, int k, int slot) {
  return differentiate(f, k, slot, false);
}

Formula straight_through_derivative(const Formula& f, int k, int slot) {
  return differentiate(f, k, slot, true);
}

}  // namespace lumen
