// Needs: a chip that LUMEN_STAND_IN_AMD names. Vectors of short lanes, which chips compute in words: every operation
// that is done so gives what lanes give one by one; words gathered by bytes, and tables of codes read that way.
#include <gtest/gtest.h>

#include <random>

#include "kernel/loop/build.h"
#include "kernel/loop/eval/eval.h"
#include "kernel/synth/unpack/unpack.h"
#include "tests/amd/gpu_code.h"

namespace lumen::test {
namespace {

constexpr int64_t kRounds = 64, kBytes = 16;  // lanes; of an operand of each

class AmdBytes : public ::testing::Test {
 protected:
  using Results = std::vector<loop::Expr>;
  using Make = std::function<Results(loop::Builder&, const std::function<loop::Expr(int, loop::VType)>&)>;

  void SetUp() override {
    gpu_ = GpuCode::open();
    if (!gpu_) GTEST_SKIP() << "LUMEN_STAND_IN_AMD names no chip";
  }

  // Results of sixteen bytes each, of random operands, as the evaluator has them.
  void compare(const std::string& name, const Make& make) {
    int count = 0;
    loop::Builder b(name);
    const auto left = b.param("left", kRounds * kBytes, false), right = b.param("right", kRounds * kBytes, false);
    const auto third = b.param("third", kRounds * kBytes, false);
    const auto out = b.param("out", kRounds * kBytes * kMost, true);
    b.loop(loop::LoopKind::grid, b.i64(0), b.i64(1), 1, [&](loop::Expr) {
      b.loop(loop::LoopKind::lane, b.i64(0), b.i64(kRounds), 1, [&](loop::Expr round) {
        const auto operand = [&](int which, loop::VType type) {
          return b.load(which == 0 ? left : which == 1 ? right : third, type, round * kBytes, 16);
        };
        count = 0;
        for (const loop::Expr& x : make(b, operand)) b.store(out, x, (round * kMost + count++) * kBytes, 16);
      });
    });
    ASSERT_LE(count, kMost);
    const loop::Kernel kernel = b.finish();
    std::vector<std::vector<uint8_t>> buffers(4, std::vector<uint8_t>(kRounds * kBytes));
    buffers[3].resize(kRounds * kBytes * kMost);
    std::mt19937 random(11);
    for (size_t i = 0; i < 3; ++i)
      for (uint8_t& x : buffers[i]) {
        constexpr uint8_t kEdges[] = {0, 1, 0x7f, 0x80, 0x81, 0xff};
        x = random() % 3 == 0 ? kEdges[random() % 6] : random();
      }
    auto got = buffers, want = buffers;
    const auto spans = [](auto& of) { return std::vector<std::span<uint8_t>>(of.begin(), of.end()); };
    ASSERT_EQ(gpu_->run(kernel, spans(got)).code, 0);
    loop::eval(
        kernel, spans(want), [&](std::string_view row) { return gpu_->machine().meaning(row); }, gpu_->machine().wave);
    for (int i = 0; i < count; ++i)
      for (int64_t round = 0; round < kRounds; ++round)
        for (int64_t byte = 0; byte < kBytes; ++byte) {
          const int64_t at = (round * kMost + i) * kBytes + byte;
          ASSERT_EQ(got[3][at], want[3][at]) << name << ", result " << i << ", byte " << byte;
        }
  }

  static constexpr int kMost = 24;
  GpuCode* gpu_ = nullptr;
};

TEST_F(AmdBytes, LanesOfWordsAreComputedApart) {
  for (const Scalar s : {Scalar::u8, Scalar::i8, Scalar::u16}) {
    const loop::VType type{s, static_cast<int>(kBytes / scalar_bytes(s))};
    compare(fmt::format("lanes_{}", scalar_name(s)), [&](loop::Builder& b, const auto& operand) {
      const loop::Expr x = operand(0, type), y = operand(1, type);
      Results out{x + y, x - y, x & y, x | y, x ^ y, x - 32, x + 96, (x & 15) - 8, (x ^ 4) - 4};
      for (const int by : {1, 3, 7}) {
        out.push_back(x << by);
        out.push_back(x >> by);
      }
      return out;
    });
  }
}

TEST_F(AmdBytes, WordsAreGatheredByBytes) {
  constexpr const char* kRow = "bytepermute.u32";
  ASSERT_TRUE(gpu_->machine().find_row(kRow));
  compare("gathered", [&](loop::Builder& b, const auto& operand) {
    const loop::VType word{Scalar::u32, 1}, words{Scalar::u32, 4};
    loop::Expr all = operand(0, words), near = all;
    for (int i = 0; i < 4; ++i) {
      const auto of = [&](int which) { return b.extract(operand(which, words), i); };
      all = b.insert(all, b.inst(kRow, word, {of(0), of(1), of(2)}), i);
      const loop::Expr which = of(2) & 0x07070707;
      near = b.insert(near, b.inst(kRow, word, {of(0), of(1), which}), i);
    }
    return Results{all, near};
  });
}

TEST_F(AmdBytes, TablesOfCodesAreReadByBytes) {
  const loop::VType bytes{Scalar::u8, kBytes};
  std::vector<int64_t> table;
  for (int64_t i = 0; i < 16; ++i) table.push_back((37 * i * i + 11) % 256);
  compare("tables", [&](loop::Builder& b, const auto& operand) {
    Results out;
    for (const int64_t entries : {4, 8, 11, 16}) {
      EXPECT_TRUE(synth::looks_up_bytes(entries, kBytes, gpu_->machine()));
      const loop::Expr index = operand(0, bytes) & (entries <= 4 ? 3 : entries <= 8 ? 7 : 15);
      const std::vector<int64_t> some(table.begin(), table.begin() + entries);
      // Beyond a table's end lies anything.
      const loop::Expr inside = min(index, b.integer(entries - 1, bytes));
      out.push_back(synth::look_up_bytes(b, some, inside, gpu_->machine()));
    }
    return out;
  });
}

}  // namespace
}  // namespace lumen::test
