// Needs: nothing. The text form of loop IR: print and parse are exact inverses, and bad texts are refused with their
// place.
#include <gtest/gtest.h>

#include "base/error.h"
#include "kernel/loop/build.h"
#include "kernel/loop/text.h"

namespace lumen::loop {
namespace {

SourceRef source(std::string text) {
  return std::make_shared<Source>(Source{"test", std::move(text)});
}

// Every operation once; canonical, so that it prints as it stands.
constexpr const char* kEverything =
    R"(kernel "all of it: 1x2"(@0 x: 4096 bytes align 64, @1 y: 4096 bytes align 64 written) aliased {
  %0 = constant i64 0
  %1 = constant i64 1024
  loop parallel %2 from %0 to %1 step 16 {
    %3 = constant f32x4 [0, 1.5, -2, 0.25]
    %4 = constant f32x16 0.10000000149011612
    %5 = constant f64 inf
    @2 = alloc private 64 bytes align 64
    %6 = load f32x16 @0[%2] align 4
    %7 = load f32x16 @0[%2] align 4 count %0
    %8 = mul f32x16 %6, %7
    %9 = fma f32x16 %6, %7, %4
    %10 = lt boolx16 %6, %7
    %11 = select f32x16 %10, %6, %7
    %12 = cast i32x16 %11
    %13 = shuffle f32x4 %6 [0, 1, -1, 15]
    %14 = shuffle f32x4 %3, %13 [0, 4, 1, 7]
    %15 = extract f32 %6 lane 3
    %16 = insert f32x16 %6, %15 lane 0
    %17 = splat f32x16 %15
    %18 = fold f32 add %17
    %19 = inst i32x16 dot4.u8s8.i32x16 %12, %12
    %20 = inst i32x16 "odd name" %19
    %21 = gather f32x16 @0[%12]
    scatter @1[%12] %21
    prefetch @0[%1] into first
    prefetch @1[%2] into once
    store @2[%0] %9 align 64
    store @1[%2] %16 align 4 count %0
    %22 = lt bool %15, %18
    guard index %22, %2
    loop serial %23 from %0 to %2 step 1 {
      branch %22 {
        store @1[%23] %15 align 1
      } else {
        store @1[%23] %18 align 1
      }
      branch %22 {
        guard finite %22, %23
      }
    }
    loop unroll %24 from %0 to %1 step 512 {
    }
  }
}
)";

std::string canonical() {
  return kEverything;
}

TEST(LoopText, EverythingRoundTrips) {
  const Kernel k = parse_kernel(source(canonical()));
  EXPECT_EQ(print(k), canonical());
  EXPECT_EQ(print(parse_kernel(source(print(k)))), print(k));
  EXPECT_EQ(k.tasks, 64);
  EXPECT_EQ(k.value_count, 25);
  EXPECT_EQ(k.buffer_count, 3);
}

TEST(LoopText, InstancesRoundTrip) {
  std::string text = canonical();
  text.replace(text.find(") aliased {"), 11, ") aliased instances 3 {");
  const Kernel k = parse_kernel(source(text));
  EXPECT_EQ(k.instances, 3);
  EXPECT_EQ(k.tasks, 64) << "of each";
  EXPECT_EQ(print(k), text);
  for (const char* wrong : {"0", "17", "-1", "99999999999"}) {
    std::string bad = canonical();
    bad.replace(bad.find(") aliased {"), 11, std::string(") instances ") + wrong + " {");
    EXPECT_THROW(parse_kernel(source(bad)), Error) << wrong;
  }
}

TEST(LoopText, BuiltKernelsRoundTrip) {
  Builder b("b\"\\\x01");
  const BufferId y = b.param("the result", 64, true);
  b.loop(LoopKind::parallel, b.i64(0), b.i64(64), 4, [&](Expr at) {
    b.store(y, b.real(-0.0, {Scalar::f32, 1}), at);
    b.store(y, b.real(1e-45, {Scalar::f32, 1}), at);
    b.store(y, b.integer(INT64_MIN, {Scalar::i64, 1}), at);
  });
  const Kernel k = b.finish();
  const Kernel again = parse_kernel(source(print(k)));
  EXPECT_EQ(print(again), print(k));
  EXPECT_EQ(again.name, k.name);
  EXPECT_EQ(again.value_types, k.value_types);
}

TEST(LoopText, FunctionsRoundTrip) {
  const std::string text =
      "func dot2.i8(%0: i32, %1: i8x2, %2: i8x2) -> i32 {\n"
      "  %3 = cast i32x2 %1\n"
      "  %4 = cast i32x2 %2\n"
      "  %5 = mul i32x2 %3, %4\n"
      "  %6 = fold i32 add %5\n"
      "  %7 = add i32 %0, %6\n"
      "  return %7\n"
      "}\n";
  EXPECT_EQ(print(parse_function(source(text))), text);
}

TEST(LoopText, CommentsAndSpacesAreFree) {
  const Kernel k = parse_kernel(source("# head\nkernel k ( @0 x : 8 bytes align 8 ){ # tail\n}"));
  EXPECT_EQ(k.params[0].bytes, 8);
}

TEST(LoopText, RefusesWithPlace) {
  const auto message = [](std::string text) -> std::string {
    try {
      parse_kernel(source(std::move(text)));
    } catch (const Error& e) {
      return e.what();
    }
    return "accepted";
  };
  EXPECT_NE(message("kernel k() {\n  %0 = frobnicate f32 %1\n}").find("test:2:8: error: no operation 'frobnicate'"),
            std::string::npos);
  EXPECT_NE(message("kernel k() {").find("expected '}'"), std::string::npos);
  EXPECT_NE(message("").find("expected 'kernel'"), std::string::npos);
  EXPECT_NE(message("kernel k() { %0 = constant f99 1 }").find("expected a type"), std::string::npos);
  EXPECT_NE(message("kernel k() { %0 = constant f32x99999999 1 }").find("expected a type"), std::string::npos);
  EXPECT_NE(message("kernel k() { %9999999999 = constant f32 1 }").find("value number"), std::string::npos);
  EXPECT_NE(message("kernel k() { %7 = constant f32 1 }").find("gaps"), std::string::npos);
  EXPECT_NE(message("kernel k() { %0 = constant i8 300 }").find("does not fit"), std::string::npos);
  EXPECT_NE(message("kernel k() { %0 = add f32 %1, %1 }").find("not visible"), std::string::npos);
  EXPECT_NE(message("kernel k(@0 x: 8 bytes align 8) { %0 = constant i64 0 prefetch @0[%0] into fifth }")
                .find("expected one of first, second, third, once"),
            std::string::npos);
  EXPECT_NE(message("kernel k() { %0 = constant i64 0 @0 = alloc private 8 bytes align 8 prefetch @0[%0] into first }")
                .find("prefetches are of params"),
            std::string::npos);
  EXPECT_NE(message("kernel \"k").find("does not end"), std::string::npos);
  std::string deep = "kernel k() { %0 = constant i64 0 ";
  for (int i = 1; i < 5000; ++i) deep += "loop serial %" + std::to_string(i) + " from %0 to %0 step 1 { ";
  EXPECT_NE(message(deep).find("nest deeper"), std::string::npos);
}

TEST(LoopText, TruncatedTextsAreRefusedCleanly) {
  const std::string text = canonical();
  for (size_t n = 0; n + 2 < text.size(); n += 7) EXPECT_THROW(parse_kernel(source(text.substr(0, n))), Error) << n;
}

}  // namespace
}  // namespace lumen::loop
