// needs: none. Degrees in which formulas are homogeneous.
#include "graph/equivalence/degree.h"

#include <gtest/gtest.h>

namespace lumen::graph {
namespace {

struct Case {
  Formula f;
  int a, b;
  Case() {
    f.inputs = {Scalar::f32, Scalar::f32};
    a = f.input(0);
    b = f.input(1);
  }
  // -100: not homogeneous.
  int degree(bool in_a, bool in_b, bool linear = false) {
    const auto d = degree_of(f, {{in_a, in_b}, linear, {}});
    return d ? d->degree : -100;
  }
};

TEST(Degree, ProductsAndSums) {
  Case c;
  c.f.outputs = {c.f.op(ScalarOp::mul_, c.a, c.b)};
  EXPECT_EQ(c.degree(true, false), 1);
  EXPECT_EQ(c.degree(true, true), 2);
  EXPECT_EQ(c.degree(false, false), 0);
  Case s;
  s.f.outputs = {s.f.op(ScalarOp::add_, s.a, s.b)};
  EXPECT_EQ(s.degree(true, true), 1);
  EXPECT_EQ(s.degree(true, false), -100);
  Case q;
  q.f.outputs = {q.f.op(ScalarOp::div_, q.a, q.b)};
  EXPECT_EQ(q.degree(false, true), -1);
  EXPECT_EQ(q.degree(false, true, true), -100);
}

TEST(Degree, MaximaKnowPositiveMultiplesOnly) {
  Case c;
  c.f.outputs = {c.f.op(ScalarOp::max_, c.a, c.f.constant(Scalar::f32, 0))};
  EXPECT_EQ(c.degree(true, false), 1);
  EXPECT_EQ(c.degree(true, false, true), -100);
  Case e;
  e.f.outputs = {e.f.op(ScalarOp::exp_, e.a)};
  EXPECT_EQ(e.degree(true, false), -100);
  EXPECT_EQ(e.degree(false, true), 0);
  Case m;
  m.f.outputs = {m.f.op(ScalarOp::min_, m.a, m.f.constant(Scalar::f32, 7))};
  EXPECT_EQ(m.degree(true, false), -100);
}

TEST(Degree, ConstantsAddedToAParameter) {
  Case c;  // a * (1 + b)
  c.f.outputs = {c.f.op(ScalarOp::mul_, c.a, c.f.op(ScalarOp::add_, c.b, c.f.constant(Scalar::f32, 1)))};
  EXPECT_EQ(c.degree(false, true), -100);
  const auto d = degree_of(c.f, {{false, true}, false, {false, true}});
  ASSERT_TRUE(d.has_value());
  EXPECT_EQ(d->degree, 1);
  EXPECT_EQ(d->offsets[1], 1);
}

}  // namespace
}  // namespace lumen::graph
