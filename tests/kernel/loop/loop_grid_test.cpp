// needs: none. Grid kernels: what blocks, lanes, barriers, exchanges and asynchronous copies mean, and which texts are
// refused.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstring>

#include "kernel/loop/eval/eval.h"
#include "kernel/loop/rules.h"
#include "kernel/machine/machine.h"
#include "tests/kernel/loop/loop_harness.h"

namespace lumen {
namespace {

using loop::Kernel;

// Blocks of 64 lanes turn 64 floats around through shared memory.
constexpr const char* kTurn = R"(kernel turn(@0 x: 512 bytes align 64, @1 y: 512 bytes align 64 written) {
  %0 = constant i64 0
  %1 = constant i64 2
  %2 = constant i64 64
  %3 = constant i64 4
  %4 = constant i64 63
  %5 = constant i64 256
  loop grid %6 from %0 to %1 step 1 {
    @2 = alloc shared 256 bytes align 16
    %7 = mul i64 %6, %5
    loop lane %8 from %0 to %2 step 1 {
      %9 = mul i64 %8, %3
      %10 = add i64 %7, %9
      %11 = load f32 @0[%10] align 4
      store @2[%9] %11 align 4
    }
    barrier
    loop lane %12 from %0 to %2 step 1 {
      %13 = sub i64 %4, %12
      %14 = mul i64 %13, %3
      %15 = load f32 @2[%14] align 4
      %16 = mul i64 %12, %3
      %17 = add i64 %7, %16
      store @1[%17] %15 align 4
    }
  }
}
)";

std::string without(std::string text, const std::string& what) {
  const size_t at = text.find(what);
  EXPECT_NE(at, std::string::npos) << what;
  return text.erase(at, what.size());
}
std::string with(std::string text, const std::string& what, const std::string& instead) {
  const size_t at = text.find(what);
  EXPECT_NE(at, std::string::npos) << what;
  return text.replace(at, what.size(), instead);
}

std::vector<float> run(const Kernel& k, const std::vector<float>& x, size_t results, int wave = 32) {
  std::vector<float> in = x, out(results);
  const auto bytes = [](std::vector<float>& v) {
    return std::span<uint8_t>(reinterpret_cast<uint8_t*>(v.data()), v.size() * 4);
  };
  std::vector<std::span<uint8_t>> spans{bytes(in), bytes(out)};
  loop::eval(k, spans, nullptr, wave);
  return out;
}

std::vector<float> counting(size_t n) {
  std::vector<float> x(n);
  for (size_t i = 0; i < n; ++i) x[i] = static_cast<float>(i);
  return x;
}

TEST(LoopGrid, BlocksTurnTheirPieceThroughSharedMemory) {
  const Kernel k = parse(kTurn);
  EXPECT_EQ(k.tasks, 2);
  EXPECT_EQ(loop::block_lanes(k), 64);
  EXPECT_EQ(loop::shared_bytes(k), 256);
  EXPECT_EQ(loop::print(k), kTurn);
  const std::vector<float> y = run(k, counting(128), 128);
  for (int i = 0; i < 64; ++i) {
    EXPECT_EQ(y[static_cast<size_t>(i)], 63 - i);
    EXPECT_EQ(y[static_cast<size_t>(64 + i)], 127 - i);
  }
}

TEST(LoopGridDeathTest, AMissingBarrierIsFound) {
  const Kernel k = parse(without(kTurn, "    barrier\n"));
  EXPECT_DEATH(run(k, counting(128), 128), "without a barrier");
}

// Each lane reads what the lane `apart` further wrote, behind a meeting of its wave.
Kernel meeting(int apart) {
  std::string text = kTurn;
  text = without(text, "    barrier\n");
  text = without(text, "    }\n    loop lane %12 from %0 to %2 step 1 {\n");
  text = with(text, "      %13 = sub i64 %4, %12\n",
              fmt::format("      wave_barrier\n      %12 = constant i64 {}\n      %13 = xor i64 %8, %12\n", apart));
  text = with(text, "      %16 = mul i64 %12, %3\n", "      %16 = mul i64 %8, %3\n");
  return parse(text);
}

TEST(LoopGrid, LanesOfAWaveMeet) {
  const Kernel k = meeting(5);
  EXPECT_EQ(loop::print(parse(loop::print(k))), loop::print(k));
  const std::vector<float> y = run(k, counting(128), 128);
  for (int i = 0; i < 128; ++i) EXPECT_EQ(y[static_cast<size_t>(i)], i ^ 5);
}

TEST(LoopGridDeathTest, OtherWavesAreNotMet) {
  EXPECT_DEATH(run(meeting(32), counting(128), 128), "without a barrier");
}

TEST(LoopGrid, RefusedTexts) {
  EXPECT_NE(error_of(with(kTurn, "step 1 {\n      %9", "step 2 {\n      %9")).find("lanes are counted"),
            std::string::npos);
  // Lanes of a block: one number in the whole kernel.
  EXPECT_NE(error_of(with(kTurn, "loop lane %12 from %0 to %2", "loop lane %12 from %0 to %4")).find("a block of 64"),
            std::string::npos);
  EXPECT_NE(error_of(with(kTurn, "    barrier\n", "    store @1[%0] %0 align 4\n")).find("outside the lane loops"),
            std::string::npos);
  EXPECT_NE(error_of(with(kTurn, "      %9 = mul", "      barrier\n      %9 = mul")).find("between lane loops"),
            std::string::npos);
  EXPECT_NE(error_of(with(kTurn, "%15 = load f32 @2[%14]", "%15 = load f32 @2[%9]")).find("not visible"),
            std::string::npos);
  EXPECT_NE(error_of(with(kTurn, "loop grid", "loop parallel")).find("shared memory belongs to a block"),
            std::string::npos);
  EXPECT_NE(error_of("kernel k(@0 x: 4 bytes align 4 written) {\n  barrier\n}\n").find("between lane loops"),
            std::string::npos);
}

// Sums of a wave by exchange; every lane ends with the whole sum.
std::string butterfly(int wave) {
  std::string text = R"(kernel sum(@0 x: 256 bytes align 64, @1 y: 256 bytes align 64 written) {
  %0 = constant i64 0
  %1 = constant i64 1
  %2 = constant i64 64
  %3 = constant i64 4
  loop grid %4 from %0 to %1 step 1 {
    loop lane %5 from %0 to %2 step 1 {
      %6 = mul i64 %5, %3
      %7 = load f32 @0[%6] align 4
      %8 = lane_id i64
)";
  int next = 9, sum = 7;
  for (int step = 1; step < wave; step *= 2, next += 4) {
    text += fmt::format(
        "      %{} = constant i64 {}\n      %{} = xor i64 %8, %{}\n      %{} = wave_shuffle f32 %{} from %{}\n"
        "      %{} = add f32 %{}, %{}\n",
        next, step, next + 1, next, next + 2, sum, next + 1, next + 3, sum, next + 2);
    sum = next + 3;
  }
  return text + fmt::format("      store @1[%6] %{} align 4\n    }}\n  }}\n}}\n", sum);
}

TEST(LoopGrid, ExchangeSumsAWave) {
  for (const int wave : {32, 64}) {
    const Kernel k = parse(butterfly(wave));
    EXPECT_EQ(loop::print(k), butterfly(wave));
    const std::vector<float> y = run(k, counting(64), 64, wave);
    for (size_t i = 0; i < 64; ++i) EXPECT_EQ(y[i], wave == 64 ? 2016 : i < 32 ? 496 : 1520) << i;
  }
}

// Two stages of copies under way; the older one is read.
constexpr const char* kCopies = R"(kernel stages(@0 x: 1024 bytes align 64, @1 y: 512 bytes align 64 written) {
  %0 = constant i64 0
  %1 = constant i64 1
  %2 = constant i64 32
  %3 = constant i64 16
  %4 = constant i64 512
  %5 = constant i64 31
  loop grid %6 from %0 to %1 step 1 {
    @2 = alloc shared 1024 bytes align 16
    loop lane %7 from %0 to %2 step 1 {
      %8 = mul i64 %7, %3
      copy @2[%8] from @0[%8] 16 bytes
      commit copies
      %9 = add i64 %8, %4
      copy @2[%9] from @0[%9] 16 bytes
      commit copies
      wait copies 1
    }
    barrier
    loop lane %10 from %0 to %2 step 1 {
      %11 = sub i64 %5, %10
      %12 = mul i64 %11, %3
      %13 = load f32x4 @2[%12] align 16
      %14 = mul i64 %10, %3
      store @1[%14] %13 align 16
    }
  }
}
)";

TEST(LoopGrid, CopiesArriveWhenWaitedFor) {
  const Kernel k = parse(kCopies);
  EXPECT_EQ(loop::print(k), kCopies);
  const std::vector<float> y = run(k, counting(256), 128);
  for (size_t i = 0; i < 128; ++i) EXPECT_EQ(y[i], static_cast<float>((31 - i / 4) * 4 + i % 4));
  // Without the wait rubbish is read.
  const std::vector<float> early = run(parse(without(kCopies, "      wait copies 1\n")), counting(256), 128);
  EXPECT_NE(early[0], 124);
  const std::vector<float> late = run(parse(with(kCopies, "wait copies 1", "wait copies 2")), counting(256), 128);
  EXPECT_NE(late[0], 124);
}

// Factors in shared memory, the first one there or held.
TEST(LoopGrid, ProductsHoldTheirFirstFactor) {
  const std::string head = R"(kernel products(@0 x: 512 bytes align 64) {
  %0 = constant i64 0
  %1 = constant i64 1
  %2 = constant i64 128
  loop grid %3 from %0 to %1 step 1 {
    @1 = alloc shared 8192 bytes align 1024
    loop lane %4 from %0 to %2 step 1 {
      %5 = constant f32x32 0
      %6 = constant bf16x8 0
)";
  const std::string tail = R"(      commit products
      wait products 0
      %8 = ready f32x32 %7
    }
  }
}
)";
  for (const char* line :
       {"      %7 = product f32x32 row %5, %6, @1[%0]\n", "      %7 = product f32x32 row %5, @1[%0], @1[%0]\n"}) {
    const std::string text = head + line + tail;
    EXPECT_EQ(loop::print(parse(text)), text);
  }
  EXPECT_NE(error_of(head + "      %7 = product f32x32 row %5, %6, @0[%0]\n" + tail), "");
}

// Thirty-two rows of sixteen bytes, a lane's number at its own place in reverse order; every lane gets four words.
constexpr const char* kLoaded = R"(kernel loaded(@0 x: 512 bytes align 64, @1 y: 512 bytes align 64 written) {
  %0 = constant i64 0
  %1 = constant i64 1
  %2 = constant i64 32
  %3 = constant i64 16
  %4 = constant i64 31
  loop grid %5 from %0 to %1 step 1 {
    @2 = alloc shared 512 bytes align 1024
    loop lane %6 from %0 to %2 step 1 {
      %7 = mul i64 %6, %3
      %8 = load u16x8 @0[%7] align 16
      %9 = sub i64 %4, %6
      %10 = mul i64 %9, %3
      store @2[%10] %8 align 16
    }
    barrier
    loop lane %11 from %0 to %2 step 1 {
      %12 = sub i64 %4, %11
      %13 = mul i64 %12, %3
      %14 = load_matrix u16x8 load_matrix.x4 @2[%13]
      %15 = mul i64 %11, %3
      store @1[%15] %14 align 16
    }
  }
}
)";

std::vector<uint16_t> run_loaded(const std::string& text) {
  const machine::MachineRef m = machine::find_machine("sm_80");
  std::vector<uint16_t> x(256), y(256);
  for (size_t i = 0; i < x.size(); ++i) x[i] = static_cast<uint16_t>(i);
  const auto bytes = [](std::vector<uint16_t>& v) { return std::span(reinterpret_cast<uint8_t*>(v.data()), 512); };
  std::vector<std::span<uint8_t>> spans{bytes(x), bytes(y)};
  loop::eval(parse(text), spans, [&](std::string_view row) { return m->meaning(row); }, m->wave);
  return y;
}

TEST(LoopGrid, LanesLoadMatricesTogether) {
  EXPECT_EQ(loop::print(parse(kLoaded)), kLoaded);
  // PTX ISA, ldmatrix: register i of lane l has of row l / 4 of matrix i the numbers 2 (l % 4) and the next; transposed
  // column l / 4 of the rows 2 (l % 4) and the next.
  const std::vector<uint16_t> plain = run_loaded(kLoaded),
                              transposed = run_loaded(with(kLoaded, "load_matrix.x4", "load_matrix.x4.transposed"));
  for (size_t lane = 0; lane < 32; ++lane)
    for (size_t i = 0; i < 8; ++i) {
      const size_t row = i / 2 * 8, far = lane / 4, near = lane % 4 * 2 + i % 2;
      EXPECT_EQ(plain[lane * 8 + i], (row + far) * 8 + near);
      EXPECT_EQ(transposed[lane * 8 + i], (row + near) * 8 + far);
    }
  EXPECT_NE(error_of(with(kLoaded, "load_matrix.x4 @2", "load_matrix.x4 @0")).find("from shared memory"),
            std::string::npos);
}

TEST(LoopGridDeathTest, MatricesAreLoadedBehindABarrier) {
  EXPECT_DEATH(run_loaded(without(with(kLoaded, "%12 = sub i64 %4, %11", "%12 = add i64 %0, %11"), "    barrier\n")),
               "without a barrier");
}

// A panel that a product under way reads is not free: not even behind a barrier.
constexpr const char* kReused = R"(kernel reused(@0 x: 2048 bytes align 64) {
  %0 = constant i64 0
  %1 = constant i64 1
  %2 = constant i64 128
  %3 = constant i64 16
  loop grid %4 from %0 to %1 step 1 {
    @1 = alloc shared 8192 bytes align 1024
    loop lane %5 from %0 to %2 step 1 {
      %6 = constant f32x32 0
      %7 = product f32x32 product.64x64x16.bf16bf16.f32 %6, @1[%0], @1[%0]
      commit products
      wait products 0
    }
    barrier
    loop lane %8 from %0 to %2 step 1 {
      %9 = mul i64 %8, %3
      copy @1[%9] from @0[%9] 16 bytes
      commit copies
    }
  }
}
)";

void run_products(const std::string& text) {
  const machine::MachineRef m = machine::find_machine("sm_90a");
  std::vector<uint8_t> x(2048);
  std::vector<std::span<uint8_t>> spans{x};
  loop::eval(parse(text), spans, [&](std::string_view row) { return m->meaning(row); }, m->wave);
}

TEST(LoopGridDeathTest, APanelOfAProductUnderWayIsNotFree) {
  run_products(kReused);
  EXPECT_DEATH(run_products(without(kReused, "      wait products 0\n")), "what a product under way reads");
}

}  // namespace
}  // namespace lumen
