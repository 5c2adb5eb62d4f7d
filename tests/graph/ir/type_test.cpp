// Needs: none. Dims, shapes, sizes; the rules of operators that texts do not reach; invariants the verifier guards.
#include "graph/ir/type.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "graph/ir/build.h"
#include "graph/ir/verify.h"

namespace lumen::graph {
namespace {

TEST(Dim, MultipliesAndDivides) {
  const Dim b("B"), t("T");
  EXPECT_EQ(print(b * t * Dim(2)), "2*B*T");
  EXPECT_EQ(t * b, b * t);
  EXPECT_EQ(divide(b * t * Dim(6), t * Dim(3)), b * Dim(2));
  EXPECT_FALSE(divide(b, t));
  EXPECT_FALSE(divide(Dim(5), Dim(2)));
  EXPECT_THROW(Dim(int64_t{1} << 62) * Dim(4), Error);
  EXPECT_EQ(elements({}), Dim(1));
}

TEST(Type, BindsAndMeasures) {
  const Type t{{Dim("B") * Dim("T"), 3}, {Scalar::f16, nullptr}};
  EXPECT_EQ(byte_size(bind(t, {{"B", 2}, {"T", 5}})), 60);
  EXPECT_EQ(print(bind(t, {{"B", 2}})), "tensor<2*Tx3xf16>");
  EXPECT_THROW(byte_size({{int64_t{1} << 62, 2}, {}}), Error);
}

TEST(Verify, FindsBrokenInvariants) {
  Graph g;
  Builder b(g);
  const ValueId s = b.input("s", Role::state, {{4}, {}}), x = b.input("x", Role::data, {{4}, {}});
  const ValueId u = b.update(s, x);
  const ValueId y = b.add(u, x);
  g.results = {y};
  g.result_names = {""};
  EXPECT_EQ(verify(g), "");

  Graph broken = g;
  broken[y].operands[0] = s;
  EXPECT_NE(verify(broken).find("old value"), std::string::npos);
  broken = g;
  broken[y].type.shape = {5};
  EXPECT_NE(verify(broken).find("the result is tensor<4xf32>"), std::string::npos);
  broken = g;
  broken[y].operands[1] = y;
  EXPECT_NE(verify(broken).find("does not precede"), std::string::npos);
  broken = g;
  broken.result_names.clear();
  EXPECT_NE(verify(broken).find("names"), std::string::npos);
  broken = g;
  broken[x].attributes.name = "s";
  EXPECT_NE(verify(broken).find("second input named s"), std::string::npos);
  broken = g;
  broken.results = {99};
  EXPECT_NE(verify(broken).find("does not exist"), std::string::npos);
}

}  // namespace
}  // namespace lumen::graph
