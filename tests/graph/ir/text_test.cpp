// Needs: none. Text and graphs are exact inverses; wrong texts are refused with their place.
#include "graph/ir/text.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "graph/ir/build.h"

namespace lumen::graph {
namespace {

FormatRef named(std::string_view name) {
  auto f = std::make_shared<Format>();
  f->name = name;
  f->block = 32;
  f->hash = hash_text(name);
  f->fields.resize(2);
  return f;
}

FormatRef lookup(std::string_view name) {
  return name == "mxq" || name == "Wide" || name == "f32" ? named(name) : nullptr;
}

std::vector<std::shared_ptr<Graph>> parse_text(std::string text) {
  return parse(std::make_shared<Source>(Source{"test", std::move(text)}), lookup);
}

constexpr const char* kCanonical = R"(graph half(%a: data tensor<BxTx64xf32>) {
  %1 = reshape %a : tensor<B*Tx64xf32>
  %half = input parameter : tensor<f32>
  %3 = map %a, %half (%0: f32, %1: f32) { %2 = mul f32 %0, %1 } -> %2 : tensor<BxTx64xf32>
  return %3
}

graph main(%x: data tensor<BxTxi32>, %w: parameter tensor<65x64xf32> "embedding", %"odd name": state tensor<2*T*(max)x64xmxq>, %c: data tensor<4x32x(Wide)>, %d: data tensor<32x(f32)>) {
  %5 = gather %w, %x : tensor<BxTx64xf32> "layers.0"
  %6 = constant {0.5} : tensor<f32> "a \\ \"b\"\n"
  %7 = call %5, %6 @half : tensor<BxTx64xf32>
  %8 = result %7 index=0 : tensor<BxTx64xf32>
  %9 = contract %8, %w (btk,nk->btn) : tensor<BxTx65xf32>
  %10 = reduce %9 max axes=[2] : tensor<BxTx1xf32>
  %11 = slice %9 starts=[0, 0, 1] strides=[1, 1, 2] : tensor<BxTx32xf32>
  %12 = permute %11 axes=[1, 0, 2] : tensor<TxBx32xf32>
  %13 = iota axis=0 : tensor<7xi32>
  %14 = constant {1, -2.5, inf} : tensor<3xf32>
  %15 = cast %"odd name" : tensor<2*T*(max)x64xf32>
  %16 = cast %11, %14 sources=[1:learned] : tensor<BxTx32xmxq>
  %17 = constant {7} : tensor<u32>
  %18 = random %17 salt=9 : tensor<5xf32>
  %19 = concat %18, %18 axis=0 : tensor<10xf32>
  %20 = cast %15 : tensor<2*T*(max)x64xmxq>
  %21 = update %"odd name", %20 : tensor<2*T*(max)x64xmxq>
  %22 = constant {0.5} : tensor<7x65x64xf32>
  %23 = contract_gather %5, %22, %x (btk,evk,bt->btv) : tensor<BxTx65xf32>
  %24 = contract_scatter %23, %5, %x (btv,btk,bt->evk) : tensor<7x65x64xf32>
  %25 = windows %22 at=[2*i1+3, 0, i0+3*i1+1] : tensor<5x2x4xf32>
  %26 = windows %9 at=[i0, i1, 10*i2+2*i3] : tensor<BxTx6x3x2xf32>
  return logits = %9, %12, "a b" = %21
}
)";

TEST(Text, CanonicalTextIsAFixedPoint) {
  const auto graphs = parse_text(kCanonical);
  ASSERT_EQ(graphs.size(), 2u);
  EXPECT_EQ(print(*graphs[1]), kCanonical);
  EXPECT_EQ((*graphs[1])[5].label, "layers.0");
  EXPECT_EQ((*graphs[1])[21].type.shape[0], Dim(2) * Dim("T") * Dim("max"));
}

struct Refused {
  const char* text;
  const char* message;
};

TEST(Text, WrongTextsAreRefused) {
  const Refused cases[] = {
      {"graph g() { return %0 }", "%0 is not defined above"},
      {"graph g(%x: data tensor<2xf32>) { %2 = reshape %x : tensor<2xf32> }", "value number 1 is written %2"},
      {"graph g(%x: data tensor<2xf32>) { %1 = reshape %x : tensor<3xf32> }", "different numbers of elements"},
      {"graph g(%x: data tensor<2xf32>) { %1 = frobnicate %x : tensor<3xf32> }", "'frobnicate' is no operator"},
      {"graph g(%x: data tensor<2xq9>) {}", "neither a scalar type nor a known format"},
      {"graph g(%x: data tensor<0xf32>) {}", "extents are at least 1"},
      {"graph g(%x: data tensor<33xmxq>) {}", "no multiple of the block"},
      {"graph g(%x: data tensor<4x", "expected a scalar type or a format"},
      {"graph g(%x: data tensor<9223372036854775807x9xf32>) {}", "too large"},
      {"graph g(%x: data tensor<2xf32>) { %1 = slice %x starts=[1] : tensor<2xf32> }", "leave the extent 2"},
      {"graph g(%x: data tensor<4xf32>) { %1 = windows %x at=[i0+2*i1] : tensor<2x3xf32> }", "element read is 5 of 4"},
      {"graph g(%x: data tensor<4xf32>) { %1 = windows %x at=[i2] : tensor<2x3xf32> }", "there is no index i2"},
      {"graph g(%x: data tensor<4xf32>) { %1 = windows %x at=[i0, i1] : tensor<2x3xf32> }", "2 subscripts for"},
      {"graph g(%x: data tensor<4xf32>) { %1 = windows %x at=[i0+-1] : tensor<2xf32> }", "not below 0"},
      {"graph g(%x: data tensor<Txf32>) { %1 = windows %x at=[i0+1] : tensor<Txf32> }", "of its own extent alone"},
      {"graph g(%x: data tensor<4xf32>) { %1 = windows %x at=[9223372036854775807*i0+i1] : tensor<3x3xf32> }",
       "element read is"},
      {"graph g(%x: data tensor<2xf32>) { %1 = call %x @f : tensor<2xf32> }", "no graph @f above"},
      {"graph g(%x: data tensor<2x3xf32>) { %1 = contract %x, %x (ij,jk->ik) : tensor<2x3xf32> }",
       "index j is 3 in one"},
      {"graph g(%x: data tensor<2x3xi32>) { %1 = contract %x, %x (ij,kj->ik) : tensor<2x2xi32> }",
       "neither floating nor of whole numbers of 8 or 16 bits"},
      {"graph g(%x: data tensor<2x3xi8>, %y: data tensor<2x3xf32>) { %2 = contract %x, %y (ij,kj->ik) : "
       "tensor<2x2xf32> }",
       "operands are whole numbers and floats"},
      {"graph g(%x: data tensor<2xf32>) { %1 = update %x, %x : tensor<2xf32> }", "must be a state, a parameter"},
      {"graph g(%x: state tensor<2xf32>) { %1 = update %x, %x : tensor<2xf32> return %x }", "old value"},
      {"graph g(%x: data tensor<2xf32>, %x: data tensor<2xf32>) {}", "defined twice"},
      {"graph g() {} graph g() {}", "a second graph"},
      {"graph \"g", "does not end"},
  };
  for (const Refused& c : cases) {
    try {
      parse_text(c.text);
      ADD_FAILURE() << c.text;
    } catch (const Error& e) {
      EXPECT_NE(std::string(e.what()).find(c.message), std::string::npos) << c.text << "\n" << e.what();
    }
  }
}

TEST(Text, EveryPrefixAndMutationOfATextIsParsedOrRefused) {
  const std::string text = kCanonical;
  for (size_t n = 0; n < text.size(); n += 3) {
    std::string broken = text.substr(0, n);
    try {
      parse_text(broken);
    } catch (const Error&) {
    }
    broken = text;
    broken[n] = "%x(){}[]<>=:,-9\"@"[n % 17];
    try {
      parse_text(broken);
    } catch (const Error&) {
    }
  }
}

}  // namespace
}  // namespace lumen::graph
