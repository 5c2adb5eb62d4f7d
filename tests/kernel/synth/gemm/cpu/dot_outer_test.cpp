// needs: none. Products of many rows by outer products, evaluated: every type and way to lie, tiles and stages that are
// not full, experts; and that plans choose them.
#include <gtest/gtest.h>

#include <algorithm>

#include "tests/graph/matrix_product.h"
#include "tests/kernel/synth/picked_cases.h"

namespace lumen::test {
namespace {

bool any(const std::vector<std::string>& plans, std::string_view what) {
  return std::ranges::any_of(plans, [&](const std::string& p) { return p.find(what) != std::string::npos; });
}

TEST(DotOuter, EveryTypeWhicheverWayItLies) {
  struct Type {
    Scalar scalar;
    double tolerance;  // results are of the type, too
    const char* row;
  };
  for (const Type& t : {Type{Scalar::f32, 2e-5, "outer1.f32f32.f32x8x8"}, Type{Scalar::bf16, 2e-2, "outer2.bf16bf16"},
                        Type{Scalar::f16, 3e-3, "outer2.f16f16.f32x8x8"}})
    for (const char* ia : {"mk", "km"})
      for (const char* ib : {"nk", "kn"}) {
        SCOPED_TRACE(fmt::format("{} {} {}", t.row, ia, ib));
        const auto plans = check(graph::matrix_product(21, 19, 45, t.scalar, ia, ib),
                                 {.tolerance = t.tolerance, .machines = {"sme-256"}});
        EXPECT_TRUE(any(plans, t.row)) << fmt::format("{}", fmt::join(plans, "\n"));
      }
}

TEST(DotOuter, StagesAndLengths) {
  for (const char* name : {"sme-128", "sme-512"}) {
    const bool in_stages = std::string_view(name) == "sme-512";
    const auto plans = check(graph::matrix_product(19, 37, in_stages ? 1300 : 150, Scalar::f32, "mk", "nk"),
                             {.tolerance = 1e-4, .machines = {name}});
    EXPECT_TRUE(any(plans, "outer1.f32f32")) << name;
    EXPECT_EQ(any(plans, " k "), in_stages) << fmt::format("{}", fmt::join(plans, "\n"));
  }
}

// What activations meet in f32, as it is unpacked, and rows that pick their matrix.
TEST(DotOuter, WeightsInFormatsAndExperts) {
  const Experts e{.rows = 37, .wide = 32, .deep = 64, .format = format_named("q4_0")};
  EXPECT_TRUE(any(check(second_of_experts(e).g, {.tolerance = 1e-4, .limits = {{"picks", 4}}, .machines = {"sme-256"}}),
                  "outer1.f32f32"));
  EXPECT_TRUE(any(check_experts({.rows = 37, .wide = 32, .deep = 64}, {.machines = {"sme-256"}}), "outer1.f32f32"));
}

}  // namespace
}  // namespace lumen::test
