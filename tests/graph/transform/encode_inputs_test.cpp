// Needs: none. What products with weights read, held in a format: fitted, or with a scale that is known.
#include "graph/transform/encode_inputs.h"

#include <gtest/gtest.h>

#include <cmath>

#include "base/error.h"
#include "graph/ir/build.h"
#include "graph/ir/eval.h"
#include "graph/ir/text.h"
#include "graph/ir/verify.h"
#include "lang/parser.h"
#include "number/facts/facts.h"
#include "number/library/library.h"

namespace lumen::graph {
namespace {

const FormatLibrary& library() {
  static const FormatLibrary all = FormatLibrary::builtin();
  return all;
}

Graph parsed(const std::string& text) {
  return *parse(std::make_shared<Source>(Source{"test", text}), [](std::string_view name) {
            return library().find(name);
          }).back();
}

// w and u read the same x; d reads what w gives.
const char* const kThree =
    "graph main(%x: data tensor<Bx8xf32>, %w: parameter tensor<4x8xf32>, %u: parameter tensor<4x8xf32>, "
    "%d: parameter tensor<2x4xf32>) {\n"
    "  %4 = contract %x, %w (mk,nk->mn) : tensor<Bx4xf32>\n"
    "  %5 = contract %x, %u (mk,nk->mn) : tensor<Bx4xf32>\n"
    "  %6 = contract %4, %d (mk,nk->mn) : tensor<Bx2xf32>\n"
    "  return y = %5, z = %6\n}\n";

TEST(EncodeInputs, OneEncodingForAllThatReadTheSame) {
  const FormatRef rows = library().get("int8_row");
  const Graph g = encode_inputs(parsed(kThree), {{"w", rows, {}}, {"u", rows, {}}, {"absent", rows, {}}});
  ASSERT_EQ(verify(g), "");
  EXPECT_EQ(print(g),
            "graph main(%x: data tensor<Bx8xf32>, %w: parameter tensor<4x8xf32>, %u: parameter tensor<4x8xf32>, "
            "%d: parameter tensor<2x4xf32>) {\n"
            "  %4 = cast %x : tensor<Bx8xint8_row>\n"
            "  %5 = cast %4 : tensor<Bx8xf32>\n"
            "  %6 = contract %5, %w (mk,nk->mn) : tensor<Bx4xf32>\n"
            "  %7 = contract %5, %u (mk,nk->mn) : tensor<Bx4xf32>\n"
            "  %8 = contract %6, %d (mk,nk->mn) : tensor<Bx2xf32>\n"
            "  return y = %7, z = %8\n}\n");
}

TEST(EncodeInputs, ScalesThatAreKnownAreConstants) {
  const FormatRef whole = library().get("int8");
  const Graph g = encode_inputs(parsed(kThree), {{"w", whole, 0.5}, {"u", whole, 0.25}});
  ASSERT_EQ(verify(g), "");
  EXPECT_EQ(print(g),
            "graph main(%x: data tensor<Bx8xf32>, %w: parameter tensor<4x8xf32>, %u: parameter tensor<4x8xf32>, "
            "%d: parameter tensor<2x4xf32>) {\n"
            "  %4 = constant {0.5} : tensor<f32>\n"
            "  %5 = cast %x, %4 sources=[0:supplied] : tensor<Bx8xint8>\n"
            "  %6 = cast %5 : tensor<Bx8xf32>\n"
            "  %7 = contract %6, %w (mk,nk->mn) : tensor<Bx4xf32>\n"
            "  %8 = constant {0.25} : tensor<f32>\n"
            "  %9 = cast %x, %8 sources=[0:supplied] : tensor<Bx8xint8>\n"
            "  %10 = cast %9 : tensor<Bx8xf32>\n"
            "  %11 = contract %10, %u (mk,nk->mn) : tensor<Bx4xf32>\n"
            "  %12 = contract %7, %d (mk,nk->mn) : tensor<Bx2xf32>\n"
            "  return y = %11, z = %12\n}\n");
  // The numbers: multiples of the scale, cut off at 127 of it.
  std::map<std::string, Tensor> in;
  in["x"].type = {{Dim(1), Dim(8)}, {}};
  in["x"].values = {0.3, -0.2, 1.1, 63, 64, -70, 0, 0.26};
  in["w"].type = in["u"].type = {{Dim(4), Dim(8)}, {}};
  in["w"].values.assign(32, 0);
  in["u"].values.assign(32, 0);
  for (int n = 0; n < 4; ++n) in["u"].values[n * 8 + 2 * n] = 1;
  in["d"].type = {{Dim(2), Dim(4)}, {}};
  in["d"].values.assign(8, 0);
  EXPECT_EQ(eval(g, in)[0].values, (std::vector<double>{0.25, 1, 31.75, 0}));
}

// Columns that lie first are brought behind the rows, and back; experts that rows pick read codes like all others.
TEST(EncodeInputs, WhicheverWayTheyLie) {
  const FormatRef rows = library().get("int8_row");
  const Graph turned =
      encode_inputs(parsed("graph main(%x: data tensor<8x3xf32>, %w: parameter tensor<4x8xf32>) {\n"
                           "  %2 = contract %w, %x (nk,km->nm) : tensor<4x3xf32>\n  return y = %2\n}\n"),
                    {{"w", rows, {}}});
  ASSERT_EQ(verify(turned), "");
  EXPECT_NE(print(turned).find("tensor<3x8xint8_row>"), std::string::npos) << print(turned);
  const Graph picked = encode_inputs(
      parsed("graph main(%x: data tensor<3x8xf32>, %w: parameter tensor<2x4x8xf32>, %i: data tensor<3x2xi32>) {\n"
             "  %3 = contract_gather %x, %w, %i (nk,efk,nj->njf) : tensor<3x2x4xf32>\n  return y = %3\n}\n"),
      {{"w", rows, {}}});
  ASSERT_EQ(verify(picked), "");
  EXPECT_NE(print(picked).find("tensor<3x8xint8_row>"), std::string::npos) << print(picked);
}

TEST(EncodeInputs, WhatCannotBe) {
  const auto refused = [](const char* weight, const char* format, std::optional<double> scale) {
    try {
      (void)encode_inputs(parsed(kThree), {{weight, library().get(format), scale}});
    } catch (const Error& e) {
      return std::string(e.what());
    }
    return std::string("taken");
  };
  EXPECT_NE(refused("w", "int8_block", {}).find("8 columns do not divide into its blocks of 32"), std::string::npos);
  EXPECT_NE(refused("w", "int8_row", 1.0).find("one number per tensor"), std::string::npos);
  for (const double bad : {-1.0, 0.0, std::nan(""), HUGE_VAL, 1e-60})
    EXPECT_NE(refused("w", "int8", bad).find("is no scale that it can hold"), std::string::npos) << bad;
  EXPECT_NE(refused("x", "int8", {}).find("no product reads columns"), std::string::npos);
}

// What goes into caches passes through the format, a scale for each layer; other states stay as they are.
TEST(EncodeStates, AScaleForEachUpdate) {
  const char* const two =
      "graph main(%x: data tensor<2x8xf32>, %keys: state tensor<2x2x8xf32>, %other: state tensor<2x8xf32>) {\n"
      "  %3 = reshape %x : tensor<1x2x8xf32>\n"
      "  %4 = constant {0} : tensor<i32>\n"
      "  %5 = constant {1} : tensor<i32>\n"
      "  %6 = update %keys, %3, %4, %4, %4 : tensor<2x2x8xf32>\n"
      "  %7 = update %6, %3, %5, %4, %4 : tensor<2x2x8xf32>\n"
      "  %8 = update %other, %x : tensor<2x8xf32>\n"
      "  return keys = %7, other = %8\n}\n";
  const FormatRef whole = library().get("int8");
  const Graph g = encode_states(parsed(two), {{"keys", whole, {0.5, 0.25}}});
  ASSERT_EQ(verify(g), "");
  std::map<std::string, Tensor> in;
  in["x"].type = {{Dim(2), Dim(8)}, {}};
  in["keys"].type = {{Dim(2), Dim(2), Dim(8)}, {}};
  in["other"].type = {{Dim(2), Dim(8)}, {}};
  for (int i = 0; i < 16; ++i) in["x"].values.push_back(0.3 * i);
  in["keys"].values.assign(32, 9);
  in["other"].values.assign(16, 9);
  const auto out = eval(g, in);
  for (int i = 0; i < 16; ++i) {
    EXPECT_NEAR(out[0].values[i], 0.5 * std::nearbyint(0.3 * i / 0.5), 1e-6) << i;
    EXPECT_NEAR(out[0].values[16 + i], 0.25 * std::nearbyint(0.3 * i / 0.25), 1e-6) << i;
    EXPECT_NEAR(out[1].values[i], 0.3 * i, 1e-6) << i;
  }
  EXPECT_THROW((void)encode_states(parsed(two), {{"keys", whole, {0.5}}}), Error) << "two updates";
  EXPECT_THROW((void)encode_states(parsed(two), {{"keys", whole, {0.5, 1, 1}}}), Error);
  EXPECT_EQ(print(encode_states(parsed(two), {})), print(parsed(two)));
}

// One number of the tensor beside the codes, in whatever format, also a user's.
TEST(EncodeInputs, FormatsWithAScaleOfTheTensor) {
  FormatLibrary own;
  own.add(lang::parse_file(std::make_shared<Source>(
      Source{"own.lum",
             "format own6 { tensor top : f16\n element q : i6\n decode(i) = top * q\n"
             "fit tensor(x) { top = (max(j) abs(x[j])) / 31 }\n code(v) = clamp(rint(v * recip(top)), -31, 31) }\n"})));
  EXPECT_EQ(tensor_scale(*own.get("own6")), 0);
  EXPECT_EQ(tensor_scale(*library().get("int8")), 0);
  EXPECT_EQ(tensor_scale(*library().get("fp8_tensor")), 0);
  for (const char* name : {"int8_row", "int8_block", "mxfp8_e4m3", "bf16", "fp8_e4m3", "nvfp4"})
    EXPECT_EQ(tensor_scale(*library().get(name)), -1) << name;
  EXPECT_TRUE(refuses_inputs(*own.get("own6"), 8, 1e-9)) << "f16 has no such number";
  EXPECT_FALSE(refuses_inputs(*own.get("own6"), 8, 1e-3));
}

}  // namespace
}  // namespace lumen::graph
