// needs: none. Products that read x H instead of x.
#include "graph/equivalence/online_rotation.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "graph/equivalence/hadamard.h"
#include "graph/ir/eval.h"
#include "graph/ir/text.h"
#include "graph/ir/verify.h"

namespace lumen::graph {
namespace {

TEST(OnlineRotation, MultipliesWhatTheWeightReads) {
  const char* const text =
      "graph main(%x: data tensor<Bx24xf32>, %w: parameter tensor<2x24xf32>, %b: parameter tensor<2xf32>) {\n"
      "  %3 = contract %x, %w (mk,nk->mn) : tensor<Bx2xf32>\n"
      "  %4 = map %3, %b (%0: f32, %1: f32) { %2 = add f32 %0, %1 } -> %2 : tensor<Bx2xf32>\n"
      "  return y = %4\n}\n";
  const Graph g = *parse(std::make_shared<Source>(Source{"test", text}), nullptr).back();
  const Graph turned = rotate_inputs(g, {"w", "absent"});
  EXPECT_EQ(verify(turned), "");
  std::map<std::string, Tensor> in;
  in["x"].type = {{Dim(3), Dim(24)}, {}};
  in["w"].type = {{Dim(2), Dim(24)}, {}};
  in["b"].type = {{Dim(2)}, {}};
  for (auto& [name, t] : in)
    for (int64_t i = 0; i < elements(t.type.shape).number(); ++i)
      t.values.push_back(uniform_random(1, static_cast<uint32_t>(name[0]), static_cast<uint64_t>(i)));
  const auto want = eval(g, in, {.wide = true, .symbols = {}})[0].values;
  EXPECT_GT(std::abs(eval(turned, in, {.wide = true, .symbols = {}})[0].values[0] - want[0]), 1e-3);
  const auto factors = hadamard_factors(24);
  for (const size_t row : {0, 24}) multiply_hadamard(std::span(in["w"].values).subspan(row, 24), factors);
  const auto got = eval(turned, in, {.wide = true, .symbols = {}})[0].values;
  for (size_t i = 0; i < want.size(); ++i) EXPECT_NEAR(got[i], want[i], 1e-6);
  EXPECT_THROW((void)rotate_inputs(g, {"b"}), Error);
}

}  // namespace
}  // namespace lumen::graph
