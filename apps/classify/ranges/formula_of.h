// Builds one map of several operations over named values: an epilogue in a single kernel.
#pragma once

#include "graph/ir/build.h"

namespace lumen::graph {

class FormulaOf {
 public:
  explicit FormulaOf(Builder& b) : b_(b) {}

  int in(ValueId v) {
    f_.inputs.push_back(b_.type(v).element.scalar);
    operands_.push_back(v);
    return f_.input(int(operands_.size()) - 1);
  }
  int f32(double value) { return f_.constant(Scalar::f32, value); }
  int cast(Scalar to, int a) { return f_.type(a) == to ? a : f_.convert(ScalarOp::cast_, to, a); }
  int op(ScalarOp op, int a, int b = -1, int c = -1) { return f_.op(op, a, b, c); }
  int add(int a, int b) { return op(ScalarOp::add_, a, b); }
  int sub(int a, int b) { return op(ScalarOp::sub_, a, b); }
  int mul(int a, int b) { return op(ScalarOp::mul_, a, b); }
  int div(int a, int b) { return op(ScalarOp::div_, a, b); }
  int clamp(int a, double low, double high) { return op(ScalarOp::min_, op(ScalarOp::max_, a, f32(low)), f32(high)); }
  ValueId map(int out) {
    f_.outputs = {out};
    return b_.map(f_, operands_);
  }

 private:
  Builder& b_;
  Formula f_;
  std::vector<ValueId> operands_;
};

}  // namespace lumen::graph
