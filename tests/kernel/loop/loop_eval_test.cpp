// Needs: nothing. The loop evaluator: what each operation means, on examples worked out by hand.
#include <gtest/gtest.h>

#include <cstring>
#include <numeric>

#include "kernel/loop/build.h"
#include "kernel/loop/eval/eval.h"
#include "kernel/loop/rules.h"
#include "kernel/loop/text.h"

namespace lumen::loop {
namespace {

template <typename T>
std::span<uint8_t> bytes(std::vector<T>& v) {
  return {reinterpret_cast<uint8_t*>(v.data()), v.size() * sizeof(T)};
}

// Runs `body` once and returns what it stored through `out` (a buffer of `count` T), given an input buffer x.
template <typename T>
std::vector<T> run(int count, std::vector<T> x,
                   const std::function<void(Builder&, BufferId x, BufferId out, Expr at)>& body,
                   Status* status = nullptr, const RowLookup& rows = nullptr) {
  std::vector<T> out(static_cast<size_t>(count));
  Builder b("t");
  const BufferId in = b.param("x", static_cast<int64_t>(x.size() * sizeof(T)), false);
  const BufferId y = b.param("y", static_cast<int64_t>(out.size() * sizeof(T)), true);
  b.loop(LoopKind::parallel, b.i64(0), b.i64(1), 1, [&](Expr at) { body(b, in, y, at); });
  const std::span<uint8_t> buffers[] = {bytes(x), bytes(out)};
  const Kernel k = b.finish();
  const Status s = eval(k, buffers, rows);
  if (status) *status = s;
  return out;
}

const std::vector<float> kX{1, 2, 3, 4, 5, 6, 7, 8};

TEST(LoopEval, InstancesHaveBuffersOfTheirOwn) {
  Builder b("t");
  const BufferId in = b.param("x", 8, false), y = b.param("y", 8, true);
  b.loop(LoopKind::parallel, b.i64(0), b.i64(2), 1, [&](Expr at) {
    const Expr x = b.load(in, {Scalar::f32, 1}, at * 4, 4);
    b.guard(x < 100.0, at, kGuardFinite);
    b.store(y, x + 1.0, at * 4, 4);
  });
  Kernel k = b.finish();
  k.instances = 2;
  std::vector<float> first{1, 2}, second{30, 400}, of_first(2), of_second(2);
  const std::span<uint8_t> buffers[] = {bytes(first), bytes(of_first), bytes(second), bytes(of_second)};
  const Status s = eval(k, buffers, nullptr);
  EXPECT_EQ(of_first, (std::vector<float>{2, 3}));
  EXPECT_EQ(of_second[0], 31);
  EXPECT_EQ(s.code, kGuardFinite + kInstanceCodes) << "of the second one";
  EXPECT_EQ(s.detail, 1);
}

TEST(LoopEval, LoadsComputesStores) {
  const auto y = run<float>(8, kX, [](Builder& b, BufferId x, BufferId out, Expr at) {
    const Expr v = b.load(x, {Scalar::f32, 8}, at, 4);
    b.store(out, v * v, at, 4);
  });
  EXPECT_EQ(y, (std::vector<float>{1, 4, 9, 16, 25, 36, 49, 64}));
}

TEST(LoopEval, CountedAccessesTouchOnlyTheFirstLanes) {
  const auto y = run<float>(8, kX, [](Builder& b, BufferId x, BufferId out, Expr at) {
    // Twelve lanes from a buffer of eight: legal, because four are not read.
    b.store(out, b.load(x, {Scalar::f32, 12}, at, 4, b.i64(3)), at, 4, b.i64(5));
  });
  EXPECT_EQ(y, (std::vector<float>{1, 2, 3, 0, 0, 0, 0, 0}));
}

TEST(LoopEval, PrefetchesChangeNothingWhereverTheyPoint) {
  Status status;
  const auto y = run<float>(
      8, kX,
      [](Builder& b, BufferId x, BufferId out, Expr at) {
        for (const int64_t offset : {int64_t{0}, int64_t{1} << 40, -(int64_t{1} << 40)})
          for (const Cache into : {Cache::first, Cache::second, Cache::third, Cache::once})
            b.prefetch(x, at + offset, into);
        b.store(out, b.load(x, {Scalar::f32, 8}, at, 4), at, 4);
      },
      &status);
  EXPECT_EQ(y, kX);
  EXPECT_EQ(status.code, kGuardNone);
}

TEST(LoopEval, ShufflesWithZeros) {
  const auto y = run<float>(4, kX, [](Builder& b, BufferId x, BufferId out, Expr at) {
    const Expr lo = b.load(x, {Scalar::f32, 4}, at), hi = b.load(x, {Scalar::f32, 4}, at + 16);
    b.store(out, b.shuffle({lo, hi}, {7, -1, 0, 4}), at);
  });
  EXPECT_EQ(y, (std::vector<float>{8, 0, 1, 5}));
}

TEST(LoopEval, FoldsByHalves) {
  // (a0 + a2) + (a1 + a3): the order decides because of rounding.
  const auto y = run<float>(1, {1e8F, 1, -1e8F, 1}, [](Builder& b, BufferId x, BufferId out, Expr at) {
    b.store(out, b.fold(ScalarOp::add_, b.load(x, {Scalar::f32, 4}, at)), at);
  });
  EXPECT_EQ(y[0], 2);
}

TEST(LoopEval, InsertExtractSplat) {
  const auto y = run<float>(4, kX, [](Builder& b, BufferId x, BufferId out, Expr at) {
    const Expr v = b.load(x, {Scalar::f32, 4}, at);
    b.store(out, b.insert(b.splat(b.extract(v, 1), 4), b.extract(v, 3), 2), at);
  });
  EXPECT_EQ(y, (std::vector<float>{2, 2, 4, 2}));
}

TEST(LoopEval, GathersAndScattersInOrder) {
  const auto y = run<int32_t>(3, {10, 20, 30}, [](Builder& b, BufferId x, BufferId out, Expr) {
    const Expr v = b.gather(x, Scalar::i32, b.lanes_integer({8, 0, 4}, Scalar::i32));
    b.scatter(out, v, b.lanes_integer({4, 4, 0}, Scalar::i64));
  });
  EXPECT_EQ(y, (std::vector<int32_t>{20, 10, 0}));
}

TEST(LoopEval, LoopsAccumulateInPrivateMemory) {
  const auto y = run<int64_t>(1, {0}, [](Builder& b, BufferId, BufferId out, Expr at) {
    const BufferId sum = b.alloc(8);
    b.store(sum, b.i64(0), at);
    b.loop(LoopKind::serial, b.i64(1), b.i64(11), 3, [&](Expr i) {  // 1 4 7 10
      b.store(sum, b.load(sum, {Scalar::i64, 1}, at) + i, at);
    });
    b.store(out, b.load(sum, {Scalar::i64, 1}, at), at);
  });
  EXPECT_EQ(y[0], 22);
}

TEST(LoopEval, FirstGuardWins) {
  Status status;
  run<int64_t>(
      1, {0},
      [](Builder& b, BufferId, BufferId, Expr at) {
        b.loop(LoopKind::serial, at, b.i64(9), 1, [&](Expr i) { b.guard(i < 4, i, kGuardIndex); });
      },
      &status);
  EXPECT_EQ(status.code, kGuardIndex);
  EXPECT_EQ(status.detail, 4);
}

TEST(LoopEval, RowsMeanTheirFunctions) {
  const Function f = parse_function(
      std::make_shared<Source>(Source{"row", "func twice(%0: f32x4) -> f32x4 { %1 = add f32x4 %0, %0 return %1 }"}));
  const RowLookup rows = [&](std::string_view name) { return name == "twice" ? &f : nullptr; };
  const auto y = run<float>(
      4, kX,
      [](Builder& b, BufferId x, BufferId out, Expr at) {
        b.store(out, b.inst("twice", {Scalar::f32, 4}, {b.load(x, {Scalar::f32, 4}, at)}), at);
      },
      nullptr, rows);
  EXPECT_EQ(y, (std::vector<float>{2, 4, 6, 8}));
}

TEST(LoopEvalDeathTest, OutOfBoundsAndMisalignedAccessesStop) {
  const auto at = [](int64_t offset, int align) {
    run<float>(8, kX, [&](Builder& b, BufferId x, BufferId out, Expr) {
      b.store(out, b.load(x, {Scalar::f32, 2}, b.i64(offset), align), b.i64(0));
    });
  };
  at(24, 8);
  EXPECT_DEATH(at(28, 4), "bytes 28..36 of a buffer of 32 in: %.* = load");
  EXPECT_DEATH(at(-4, 4), "bytes -4..4");
  EXPECT_DEATH(at(4, 8), "not a multiple of 8");
}

}  // namespace
}  // namespace lumen::loop
