// needs: none. Which groups are products that a library can do, and how their matrices lie.
#include "kernel/synth/gemm/dense_product.h"

#include <gtest/gtest.h>

#include "graph/ir/text.h"
#include "graph/pipeline/pipeline.h"
#include "number/library/library.h"

namespace lumen::synth {
namespace {

// Of the dot of `body`, whose inputs are x, w and b.
std::optional<DenseGroup> dense_of(const std::string& inputs, const std::string& body, Scalar products = Scalar::f32) {
  const std::string text = "graph main(" + inputs + ") {\n" + body + "}\n";
  const auto graphs = graph::parse(std::make_shared<Source>(Source{"test", text}), nullptr);
  const graph::Pipeline p = graph::run_pipeline(*graphs.back(), {}, {}, {});
  for (const graph::Group& group : p.plan.groups)
    if (group.shape == graph::KernelShape::dot) return dense_group(p.plan, group, products);
  ADD_FAILURE() << "no dot in " << text;
  return std::nullopt;
}

std::string inputs(const std::string& a, const std::string& b, const std::string& type = "bf16") {
  return "%x: data tensor<" + a + "x" + type + ">, %w: data tensor<" + b + "x" + type + ">";
}

TEST(DenseProduct, EveryOrderIsAProduct) {
  struct Case {
    const char *a, *b, *indices, *shape;
    bool left_transposed, right_transposed;
    int64_t m, n;
    int left;  // whose rows are the result's
  };
  const Case cases[] = {{"24x40", "32x40", "(mk,nk->mn)", "24x32", false, true, 24, 32, 0},
                        {"24x40", "40x32", "(mk,kn->mn)", "24x32", false, false, 24, 32, 0},
                        {"40x24", "40x32", "(km,kn->mn)", "24x32", true, false, 24, 32, 0},
                        {"40x24", "32x40", "(km,nk->mn)", "24x32", true, true, 24, 32, 0},
                        {"24x40", "32x40", "(mk,nk->nm)", "32x24", false, true, 32, 24, 1},
                        {"2x12x40", "32x40", "(amk,nk->amn)", "2x12x32", false, true, 24, 32, 0}};
  for (const Case& c : cases) {
    const auto d = dense_of(inputs(c.a, c.b), std::string("  %2 = contract %x, %w ") + c.indices + " : tensor<" +
                                                  c.shape + "xf32>\n  return r = %2\n");
    ASSERT_TRUE(d) << c.indices;
    EXPECT_EQ(d->product, (machine::DenseProduct{.m = c.m,
                                                 .n = c.n,
                                                 .k = 40,
                                                 .operands = Scalar::bf16,
                                                 .left_transposed = c.left_transposed,
                                                 .right_transposed = c.right_transposed}))
        << c.indices;
    EXPECT_EQ(d->values, (std::vector<graph::ValueId>{c.left, 1 - c.left, 2})) << c.indices;
  }
}

// The product as value `number`.
std::string product(int number) {
  return "  %" + std::to_string(number) + " = contract %x, %w (mk,nk->mn) : tensor<24x32xf32>\n";
}

TEST(DenseProduct, ARoundingOrASumMayFollow) {
  const auto rounded =
      dense_of(inputs("24x40", "32x40"),
               product(2) + ("  %3 = map %2 (%0: f32) { %1 = cast bf16 %0 } -> %1 : tensor<24x32xbf16>\n"
                             "  return r = %3\n"));
  ASSERT_TRUE(rounded);
  EXPECT_EQ(rounded->product.result, Scalar::bf16);
  const auto added =
      dense_of(inputs("24x40", "32x40") + ", %b: data tensor<24x32xf32>",
               product(3) + ("  %4 = map %b, %3 (%0: f32, %1: f32) { %2 = add f32 %0, %1 } -> %2 : tensor<24x32xf32>\n"
                             "  return r = %4\n"));
  ASSERT_TRUE(added);
  EXPECT_TRUE(added->product.adds);
  EXPECT_EQ(added->values.size(), 4u);
}

// Two operands in codes of one 8 bit float, their scales beside them.
TEST(DenseProduct, CodesMayHaveScales) {
  const FormatLibrary formats = FormatLibrary::builtin();
  const auto find = [&](std::string_view name) { return formats.find(std::string(name)); };
  const auto dense = [&](const std::string& body) {
    const std::string text =
        "graph main(%x: data tensor<24x64xfp8_e4m3>, %w: data tensor<32x64xfp8_e4m3>, %s: data tensor<f32>, "
        "%t: data tensor<f32>) {\n  %4 = cast %x : tensor<24x64xf32>\n  %5 = cast %w : tensor<32x64xf32>\n"
        "  %6 = contract %4, %5 (mk,nk->mn) : tensor<24x32xf32>\n" +
        body + "}\n";
    const auto graphs = graph::parse(std::make_shared<Source>(Source{"test", text}), find);
    const graph::Pipeline p = graph::run_pipeline(*graphs.back(), {}, {}, {});
    for (const graph::Group& group : p.plan.groups)
      if (group.shape == graph::KernelShape::dot) return dense_group(p.plan, group, Scalar::f32);
    ADD_FAILURE() << "no dot in " << text;
    return std::optional<DenseGroup>();
  };
  const std::string scaled =
      "  %7 = map %6, %s, %t (%3: f32, %1: f32, %0: f32) { %2 = mul f32 %0, %1; %4 = mul f32 %2, %3 } -> %4 : "
      "tensor<24x32xf32>\n";
  const auto d =
      dense(scaled + "  %8 = map %7 (%0: f32) { %1 = cast bf16 %0 } -> %1 : tensor<24x32xbf16>\n  return r = %8\n");
  ASSERT_TRUE(d);
  EXPECT_TRUE(d->product.code && d->product.scales && d->product.right_transposed && !d->product.left_transposed);
  EXPECT_EQ(d->product.result, Scalar::bf16);
  EXPECT_EQ(d->values, (std::vector<graph::ValueId>{0, 1, 2, 3, 8}));
  EXPECT_FALSE(dense("  return r = %6\n")) << "codes without scales";
  EXPECT_FALSE(
      dense("  %7 = map %6, %s, %t (%3: f32, %1: f32, %0: f32) { %2 = add f32 %0, %1; %4 = mul f32 %2, %3 } -> %4 : "
            "tensor<24x32xf32>\n  return r = %7\n"));
}

TEST(DenseProduct, OthersAreNone) {
  const auto none = [](const std::string& in, const std::string& body, Scalar products = Scalar::f32) {
    EXPECT_FALSE(dense_of(in, body, products)) << body;
  };
  const std::string two = inputs("24x40", "32x40"), end = "  return r = %2\n";
  // Something else follows; a row is added.
  none(two, product(2) + ("  %3 = map %2 (%0: f32) { %1 = exp f32 %0 } -> %1 : tensor<24x32xf32>\n"
                          "  return r = %3\n"));
  none(two + ", %b: data tensor<32xf32>",
       product(3) + ("  %4 = broadcast %b : tensor<24x32xf32>\n"
                     "  %5 = map %4, %3 (%0: f32, %1: f32) { %2 = add f32 %0, %1 } -> %2 : tensor<24x32xf32>\n"
                     "  return r = %5\n"));
  // Operands of two types; factors that kernels round; a batch; one row.
  none("%x: data tensor<24x40xbf16>, %w: data tensor<32x40xf32>", product(2) + end);
  EXPECT_TRUE(dense_of(inputs("24x40", "32x40", "f32"), product(2) + end));
  none(inputs("24x40", "32x40", "f32"), product(2) + end, Scalar::bf16);
  none(inputs("2x24x40", "2x32x40"), "  %2 = contract %x, %w (amk,ank->amn) : tensor<2x24x32xf32>\n" + end);
  none(inputs("1x40", "32x40"), "  %2 = contract %x, %w (mk,nk->mn) : tensor<1x32xf32>\n" + end);
}

}  // namespace
}  // namespace lumen::synth
