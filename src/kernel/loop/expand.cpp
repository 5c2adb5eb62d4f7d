// See expand.h. Argument reductions and polynomials are the classic ones (Cody and Waite; Moshier's Cephes; Sun's
// fdlibm), written with fma. Proved by tests/kernel/loop/loop_expand_test.cpp against the C library in wider
// arithmetic.
#include "kernel/loop/expand.h"

#include <cmath>
#include <initializer_list>
#include <limits>
#include <map>
#include <mutex>

#include "base/check.h"
#include "kernel/loop/rules.h"

namespace lumen::loop {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

// Writes formulas in one float type. `Int` is the integer of equal width that holds its bits.
class Math {
 public:
  Math(Formula& formula, Scalar type) : f_(formula), s_(type), wide_(type == Scalar::f64) {}

  int of(ScalarOp op, const std::vector<int>& x) {
    switch (op) {
      case ScalarOp::exp_:
        return exp(x[0]);
      case ScalarOp::log_:
        return log(x[0]);
      case ScalarOp::sin_:
        return sine(x[0], false);
      case ScalarOp::cos_:
        return sine(x[0], true);
      case ScalarOp::tanh_:
        return tanh(x[0]);
      case ScalarOp::pow_:
        return pow(x[0], x[1]);
      default:
        LUMEN_UNREACHABLE("{} is a basic operation", scalar_op_info(op).name);
    }
  }

 private:
  int number(double x) { return f_.constant(s_, x); }
  int add(int a, int b) { return f_.op(ScalarOp::add_, a, b); }
  int sub(int a, int b) { return f_.op(ScalarOp::sub_, a, b); }
  int mul(int a, int b) { return f_.op(ScalarOp::mul_, a, b); }
  int div(int a, int b) { return f_.op(ScalarOp::div_, a, b); }
  int fma(int a, int b, int c) { return f_.op(ScalarOp::fma_, a, b, c); }
  int less(int a, int b) { return f_.op(ScalarOp::lt_, a, b); }
  int equal(int a, int b) { return f_.op(ScalarOp::eq_, a, b); }
  int select(int c, int a, int b) { return f_.op(ScalarOp::select_, c, a, b); }
  int integer(int64_t x) { return f_.integer(bits(), x); }
  Scalar bits() const { return wide_ ? Scalar::i64 : Scalar::i32; }

  // c[0] x^n + ... + c[n]
  int polynomial(int x, std::initializer_list<double> c) {
    int y = -1;
    for (const double k : c) y = y < 0 ? number(k) : fma(y, x, number(k));
    return y;
  }

  // Bounds that propagate NaN.
  int clamp(int x, double low, double high) {
    x = select(less(x, number(low)), number(low), x);
    return select(less(number(high), x), number(high), x);
  }

  // 2^k for k among the normal exponents.
  int power_of_two(int k) {
    const int biased = f_.op(ScalarOp::add_, k, integer(wide_ ? 1023 : 127));
    return f_.convert(ScalarOp::bitcast_, s_, f_.op(ScalarOp::shl_, biased, integer(wide_ ? 52 : 23)));
  }

  // e^x = 2^n e^r, |r| <= ln 2 / 2; the power in two factors, so that subnormal results round once. Adding 1.5 times
  // the number from which on all floats are integers rounds n and leaves it in the low bits.
  int exp(int x) {
    x = wide_ ? clamp(x, -750, 750) : clamp(x, -110, 100);
    const int magic = number(wide_ ? 0x1.8p52 : 0x1.8p23);
    const int shifted = fma(x, number(1.4426950408889634), magic);
    const int n = sub(shifted, magic);
    int y;
    if (wide_) {
      int r = fma(n, number(-6.93147180369123816490e-01), x);
      r = fma(n, number(-1.90821492927058770002e-10), r);
      const int z = mul(r, r);
      const int p = polynomial(z, {4.13813679705723846039e-08, -1.65339022054652515390e-06, 6.61375632143793436117e-05,
                                   -2.77777777770155933842e-03, 1.66666666666666019037e-01});
      const int c = sub(r, mul(z, p));
      y = add(number(1), add(r, div(mul(r, c), sub(number(2), c))));
    } else {
      int r = fma(n, number(-0.693359375), x);
      r = fma(n, number(2.12194440e-4), r);
      const int p = polynomial(
          r, {1.9875691500e-4, 1.3981999507e-3, 8.3334519073e-3, 4.1665795894e-2, 1.6666665459e-1, 5.0000001201e-1});
      y = add(fma(mul(r, r), p, r), number(1));
    }
    const int64_t magic_bits = wide_ ? 0x4338000000000000 : 0x4b400000;
    const int whole = f_.op(ScalarOp::sub_, f_.convert(ScalarOp::bitcast_, bits(), shifted), integer(magic_bits));
    const int half = f_.op(ScalarOp::shr_, whole, integer(1));
    return mul(mul(y, power_of_two(half)), power_of_two(f_.op(ScalarOp::sub_, whole, half)));
  }

  // log x = k ln 2 + log m, m in [sqrt(1/2), sqrt(2)); s = f / (2 + f) with f = m - 1.
  int log(int x) {
    const int mantissa = wide_ ? 52 : 23;
    const int64_t one = wide_ ? int64_t{1023} << 52 : int64_t{127} << 23;
    const int64_t root = wide_ ? 0x3fe6a09e667f3bcd : 0x3f3504f3;
    const int tiny = less(x, number(wide_ ? 0x1p-1022 : 0x1p-126));
    const int normal = select(tiny, mul(x, number(std::ldexp(1.0, mantissa + 2))), x);
    const int shifted = f_.op(ScalarOp::add_, f_.convert(ScalarOp::bitcast_, bits(), normal), integer(one - root));
    const int exponent = f_.op(ScalarOp::sub_, f_.op(ScalarOp::shr_, shifted, integer(mantissa)),
                               select(tiny, integer((wide_ ? 1023 : 127) + mantissa + 2), integer(wide_ ? 1023 : 127)));
    const int fraction = f_.op(ScalarOp::and_, shifted, integer((int64_t{1} << mantissa) - 1));
    const int m = f_.convert(ScalarOp::bitcast_, s_, f_.op(ScalarOp::add_, fraction, integer(root)));
    const int k = f_.convert(ScalarOp::cast_, s_, exponent);
    const int f = sub(m, number(1));
    const int s = div(f, add(number(2), f));
    const int z = mul(s, s);
    const int r =
        mul(z, wide_ ? polynomial(z, {1.479819860511658591e-01, 1.531383769920937332e-01, 1.818357216161805012e-01,
                                      2.222219843214978396e-01, 2.857142874366239149e-01, 3.999999999940941908e-01,
                                      6.666666666666735130e-01})
                     : polynomial(z, {0.24279078841, 0.28498786688, 0.40000972152, 0.66666662693}));
    const int half_square = mul(mul(number(0.5), f), f);
    const int low = fma(k, number(wide_ ? 1.90821492927058770002e-10 : 9.0580006145e-06), mul(s, add(half_square, r)));
    const int y = fma(k, number(wide_ ? 6.93147180369123816490e-01 : 6.9313812256e-01), add(sub(low, half_square), f));
    const int checked = select(less(x, number(0)), number(kNan), y);
    const int zero = select(equal(x, number(0)), number(-kInfinity), checked);
    const int top = select(equal(x, number(kInfinity)), x, zero);
    return select(equal(x, x), top, x);
  }

  // f64 only: quadrant n and remainder r in [-pi/4, pi/4], pi/2 in three parts.
  int sine(int x, bool cosine) {
    const int n = f_.op(ScalarOp::rint_, mul(x, number(0.63661977236758134308)));
    int r = fma(n, number(-0x1.921fb54442d18p0), x);
    r = fma(n, number(-0x1.1a62633145c07p-54), r);
    r = fma(n, number(0x1.f1976b7ed8fbcp-110), r);
    const int z = mul(r, r);
    const int s =
        fma(mul(r, z),
            polynomial(z, {1.58969099521155010221e-10, -2.50507602534068634195e-08, 2.75573137070700676789e-06,
                           -1.98412698298579493134e-04, 8.33333333332248946124e-03, -1.66666666666666324348e-01}),
            r);
    const int tail = mul(mul(z, z), polynomial(z, {-1.13596475577881948265e-11, 2.08757232129817482790e-09,
                                                   -2.75573143513906633035e-07, 2.48015872894767294178e-05,
                                                   -1.38888888888741095749e-03, 4.16666666666666019037e-02}));
    const int half = mul(number(0.5), z);
    const int w = sub(number(1), half);
    const int c = add(w, add(sub(sub(number(1), w), half), tail));
    int quadrant = f_.convert(ScalarOp::cast_, bits(), n);
    if (cosine) quadrant = f_.op(ScalarOp::add_, quadrant, integer(1));
    const auto bit = [&](int64_t b) {
      return f_.op(ScalarOp::ne_, f_.op(ScalarOp::and_, quadrant, integer(b)), integer(0));
    };
    const int chosen = select(bit(1), c, s);
    const int y = select(bit(2), f_.op(ScalarOp::neg_, chosen), chosen);
    return select(less(f_.op(ScalarOp::abs_, x), number(0x1p50)), y, number(kNan));
  }

  int tanh(int x) {
    const int size = f_.op(ScalarOp::abs_, x);
    const int z = mul(x, x);
    const int p =
        wide_ ? div(polynomial(z, {-9.64399179425052238628e-1, -9.92877231001918586564e1, -1.61468768441708447952e3}),
                    polynomial(z, {1, 1.12811678491632931402e2, 2.23548839060100448583e3, 4.84406305325125486048e3}))
              : polynomial(
                    z, {-5.70498872745e-3, 2.06390887954e-2, -5.37397155531e-2, 1.33314422036e-1, -3.33332819422e-1});
    const int near = fma(mul(x, z), p, x);
    const int far = sub(number(1), div(number(2), add(exp(add(size, size)), number(1))));
    const int signed_far = select(less(x, number(0)), f_.op(ScalarOp::neg_, far), far);
    return select(less(size, number(0.625)), near, signed_far);
  }

  // a^b for a >= 0.
  int pow(int a, int b) {
    const int y = exp(mul(b, log(a)));
    const int one = number(1);
    return select(equal(b, number(0)), one, select(equal(a, one), one, y));
  }

  Formula& f_;
  Scalar s_;
  bool wide_;
};

Formula build(ScalarOp op, Scalar s) {
  LUMEN_CHECK(is_float(s), "{} of {}", scalar_op_info(op).name, scalar_name(s));
  const bool through_f64 = op == ScalarOp::sin_ || op == ScalarOp::cos_ || op == ScalarOp::pow_;
  const Scalar inner = through_f64 || s == Scalar::f64 ? Scalar::f64 : Scalar::f32;
  Formula f;
  f.inputs.assign(scalar_op_info(op).arity, s);
  std::vector<int> x;
  for (size_t i = 0; i < f.inputs.size(); ++i) {
    x.push_back(f.input(i));
    if (inner != s) x.back() = f.convert(ScalarOp::cast_, inner, x.back());
  }
  const int y = Math(f, inner).of(op, x);
  f.outputs = {inner == s ? y : f.convert(ScalarOp::cast_, s, y)};
  return f;
}

class Expander {
 public:
  explicit Expander(Kernel& k) : k_(k) {}

  void region(Region& r) {
    std::vector<Instr> code;
    code.reserve(r.code.size());
    for (Instr& instr : r.code) {
      for (Region& inner : instr.regions) region(inner);
      if (instr.op == Op::op_ && is_transcendental(instr.scalar_op)) {
        inline_formula(instr, expansion(instr.scalar_op, instr.type.scalar), code);
      } else {
        code.push_back(std::move(instr));
      }
    }
    r.code = std::move(code);
  }

 private:
  void inline_formula(const Instr& site, const Formula& f, std::vector<Instr>& code) {
    std::vector<ValueId> values;
    for (size_t i = 0; i < f.nodes.size(); ++i) {
      const ScalarNode& node = f.nodes[i];
      if (node.op == ScalarOp::input) {
        values.push_back(site.operands[node.index]);
        continue;
      }
      Instr instr{.op = node.op == ScalarOp::constant ? Op::constant_ : Op::op_, .type = {node.type, site.type.lanes}};
      if (instr.op == Op::op_) {
        instr.scalar_op = node.op;
        for (const int a : node.args)
          if (a >= 0) instr.operands.push_back(values[a]);
      } else if (is_float(node.type)) {
        instr.data = {node.real};
      } else {
        instr.integers = {node.integer};
      }
      if (static_cast<int>(i) == f.outputs[0]) {
        instr.result = site.result;
      } else {
        instr.result = k_.value_count++;
        k_.value_types.push_back(instr.type);
      }
      values.push_back(instr.result);
      code.push_back(std::move(instr));
    }
  }

  Kernel& k_;
};

}  // namespace

bool is_transcendental(ScalarOp op) {
  return op == ScalarOp::exp_ || op == ScalarOp::log_ || op == ScalarOp::sin_ || op == ScalarOp::cos_ ||
         op == ScalarOp::tanh_ || op == ScalarOp::pow_;
}

const Formula& expansion(ScalarOp op, Scalar s) {
  static std::mutex mutex;
  static std::map<std::pair<ScalarOp, Scalar>, Formula> known;
  const std::scoped_lock lock(mutex);
  const auto [place, added] = known.try_emplace({op, s});
  if (added) place->second = build(op, s);
  return place->second;
}

Kernel expand(const Kernel& k) {
  Kernel out = k;
  Expander(out).region(out.body);
  return out;
}

}  // namespace lumen::loop
