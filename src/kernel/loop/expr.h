// Values of a kernel being written, with the operators of formulas: `sum + x * y` appends a multiplication and an
// addition to the builder of its operands. A number takes the type of the other operand; constants fold (build.h).
// Comparisons give truth values of the kernel, which & and | combine: C++ never branches on them. Proved by
// tests/kernel/loop/loop_expr_test.cpp.
#pragma once

#include <concepts>
#include <cstdint>

#include "kernel/loop/loop.h"

namespace lumen::loop {

class Builder;

class Expr {
 public:
  Expr() = default;  // no value
  Expr(Builder& b, ValueId id) : builder_(&b), id_(id) {}

  bool exists() const { return id_ >= 0; }
  ValueId id() const { return id_; }
  Builder& builder() const;                       // requires exists()
  bool is(Expr y) const { return id_ == y.id_; }  // the same SSA value

  Expr apply(ScalarOp op) const;
  Expr apply(ScalarOp op, Expr y) const;
  Expr number(int64_t x) const;  // a constant of this value's type
  Expr number(double x) const;

  friend Expr operator-(Expr x) { return x.apply(ScalarOp::neg_); }
  friend Expr operator!(Expr x) { return x.apply(ScalarOp::not_); }
  friend Expr min(Expr x, Expr y) { return x.apply(ScalarOp::min_, y); }
  friend Expr min(Expr x, int64_t y) { return min(x, x.number(y)); }
  friend Expr max(Expr x, Expr y) { return x.apply(ScalarOp::max_, y); }
  friend Expr max(Expr x, int64_t y) { return max(x, x.number(y)); }
  friend Expr abs(Expr x) { return x.apply(ScalarOp::abs_); }
  friend Expr exp(Expr x) { return x.apply(ScalarOp::exp_); }
  friend Expr log(Expr x) { return x.apply(ScalarOp::log_); }
  friend Expr rint(Expr x) { return x.apply(ScalarOp::rint_); }
  friend Expr ldexp(Expr x, Expr y) { return x.apply(ScalarOp::ldexp_, y); }
  friend Expr mulhi(Expr x, Expr y) { return x.apply(ScalarOp::mulhi_, y); }

 private:
  Builder* builder_ = nullptr;
  ValueId id_ = -1;
};

#define LUMEN_OPERATOR(symbol, op)                                   \
  inline Expr operator symbol(Expr x, Expr y) {                      \
    return x.apply(ScalarOp::op, y);                                 \
  }                                                                  \
  inline Expr operator symbol(Expr x, std::integral auto y) {        \
    return x.apply(ScalarOp::op, x.number(static_cast<int64_t>(y))); \
  }                                                                  \
  inline Expr operator symbol(std::integral auto x, Expr y) {        \
    return y.number(static_cast<int64_t>(x)).apply(ScalarOp::op, y); \
  }                                                                  \
  inline Expr operator symbol(Expr x, std::floating_point auto y) {  \
    return x.apply(ScalarOp::op, x.number(double{y}));               \
  }                                                                  \
  inline Expr operator symbol(std::floating_point auto x, Expr y) {  \
    return y.number(double{x}).apply(ScalarOp::op, y);               \
  }
LUMEN_OPERATOR(+, add_)
LUMEN_OPERATOR(-, sub_)
LUMEN_OPERATOR(*, mul_)
LUMEN_OPERATOR(/, div_)  // integers: rounded down
LUMEN_OPERATOR(%, rem_)  // the remainder of that division
LUMEN_OPERATOR(&, and_)
LUMEN_OPERATOR(|, or_)
LUMEN_OPERATOR(^, xor_)
LUMEN_OPERATOR(<<, shl_)
LUMEN_OPERATOR(>>, shr_)
LUMEN_OPERATOR(==, eq_)
LUMEN_OPERATOR(!=, ne_)
LUMEN_OPERATOR(<, lt_)
LUMEN_OPERATOR(<=, le_)
#undef LUMEN_OPERATOR

inline Expr& operator+=(Expr& x, const auto& y) {
  return x = x + y;
}
Expr fma(Expr x, Expr y, Expr z);  // x * y + z, rounded once
Expr select(Expr condition, Expr x, Expr y);
Expr cast(Expr x, Scalar to);
Expr bitcast(Expr x, Scalar to);

}  // namespace lumen::loop
