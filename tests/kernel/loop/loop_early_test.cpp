// needs: none. What a kernel may do before those before have ended: which texts are refused, and that it is printed,
// read and evaluated.
#include <gtest/gtest.h>

#include <cstring>

#include "kernel/loop/eval/eval.h"
#include "kernel/loop/verify.h"
#include "tests/kernel/loop/loop_harness.h"

namespace lumen {
namespace {

std::string with(std::string text, const std::string& from, const std::string& to) {
  const size_t at = text.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  return text.replace(at, from.size(), to);
}

// y = w + x; w is copied early.
constexpr const char* kEarly =
    R"(kernel early(@0 w: 128 bytes align 64 constant, @1 x: 128 bytes align 64, @2 y: 128 bytes align 64 written) {
  %0 = constant i64 0
  %1 = constant i64 1
  %2 = constant i64 32
  %3 = constant i64 4
  loop grid %4 from %0 to %1 step 1 {
    @3 = alloc shared 128 bytes align 16
    loop lane %5 from %0 to %2 step 1 {
      %6 = mul i64 %5, %3
      copy @3[%6] from @0[%6] 4 bytes
      commit copies
      wait kernels 0
      %7 = load f32 @1[%6] align 4
      wait copies 0
      %8 = load f32 @3[%6] align 4
      %9 = add f32 %7, %8
      store @2[%6] %9 align 4
    }
  }
}
)";

TEST(LoopEarly, IsPrintedReadAndEvaluated) {
  const loop::Kernel k = parse(kEarly);
  EXPECT_EQ(loop::print(k), kEarly);
  EXPECT_TRUE(loop::begins_early(k));
  EXPECT_FALSE(loop::begins_early(parse(with(kEarly, "      wait kernels 0\n", ""))));
  std::vector<float> w(32, 2), x(32), y(32);
  for (size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(i);
  const auto bytes = [](std::vector<float>& v) {
    return std::span<uint8_t>(reinterpret_cast<uint8_t*>(v.data()), v.size() * 4);
  };
  const std::vector<std::span<uint8_t>> buffers{bytes(w), bytes(x), bytes(y)};
  EXPECT_EQ(loop::eval(k, buffers, nullptr).code, loop::kGuardNone);
  for (size_t i = 0; i < y.size(); ++i) EXPECT_EQ(y[i], static_cast<float>(i) + 2);
}

// Much of what other kernels may have written; not what none of them writes, nor where the kernel says where it waits.
TEST(LoopEarly, KernelsThatReadMuchBeginInWhole) {
  const std::string waits_first = with(kEarly, "      wait kernels 0\n", "");
  const auto large = [](const std::string& text, const std::string& param) {
    return loop::begins_in_whole(parse(with(text, " " + param + ": 128", " " + param + ": 16777216")));
  };
  EXPECT_FALSE(loop::begins_in_whole(parse(waits_first)));
  EXPECT_TRUE(large(waits_first, "x"));
  EXPECT_FALSE(large(waits_first, "w"));
  EXPECT_FALSE(large(waits_first, "y"));
  EXPECT_FALSE(large(kEarly, "x"));
}

TEST(LoopEarly, OnlyConstantMemoryIsCopiedBeforeTheWait) {
  const auto refused = [](const std::string& text, const std::string& why) {
    const std::string error = error_of(text);
    EXPECT_NE(error.find(why), std::string::npos) << error;
  };
  const char* kTouched = "touched before";
  refused(with(kEarly, "64 constant", "64"), kTouched);
  refused(with(kEarly, "written)", "written constant)"), "constant and written");
  // A load, a store or a guard above the wait, even in the code of the block or of a lane loop before.
  const std::string wait = "      wait kernels 0\n", load = "      %7 = load f32 @1[%6] align 4\n";
  refused(with(kEarly, wait + load, load + wait), kTouched);
  refused(with(with(kEarly, wait, ""), "      store @2[%6] %9 align 4\n", "      store @2[%6] %9 align 4\n" + wait),
          kTouched);
  refused(with(with(kEarly, load, ""), "    loop lane %5", "    %7 = load f32 @1[%0] align 4\n    loop lane %5"),
          kTouched);
  // Shared memory may be written.
  EXPECT_EQ(error_of(with(kEarly, "      copy @3", "      store @3[%6] %6 align 8\n      copy @3")), "");
}

TEST(LoopEarly, AllLanesWaitOnce) {
  const auto refused = [](const std::string& text, const std::string& why) {
    const std::string error = error_of(text);
    EXPECT_NE(error.find(why), std::string::npos) << error;
  };
  const std::string wait = "      wait kernels 0\n";
  refused(with(kEarly, wait, wait + wait), "twice");
  refused(with(kEarly, wait, "      %10 = lt bool %5, %3\n      branch %10 {\n  " + wait + "      }\n"), "all lanes");
  refused(with(kEarly, wait, "      loop serial %10 from %0 to %3 step 1 {\n  " + wait + "      }\n"), "all lanes");
  refused(with(kEarly, "wait kernels 0", "wait kernels 1"), "1 groups");
  refused(with(kEarly, wait, "      commit kernels\n" + wait), "not committed");
}

}  // namespace
}  // namespace lumen
