// Needs: none. Encoders in which lanes of waves share records and blocks: the codec's bytes, executed by the loop
// evaluator, of numbers and of what is none.
#include "kernel/synth/encode/convert.h"
#include "kernel/synth/unpack/magnitude.h"
#include "tests/kernel/synth/synth_harness.h"

namespace lumen::test {
namespace {

enum class Kind { numbers, specials, zeros };

std::vector<float> values(int64_t count, Kind kind, uint32_t seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(0, 1);
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  const std::vector<float> special = {0.0f, -0.0f, 1e-40f, -3e38f, kInfinity, -kInfinity, std::nanf(""), 1e-6f};
  std::vector<float> x;
  for (int64_t i = 0; i < count; ++i)
    x.push_back(kind == Kind::zeros                            ? 0.0f
                : kind == Kind::specials && random() % 16 == 0 ? special[random() % special.size()]
                                                               : normal(random));
  return x;
}

Blob encoded(const Format& f, const std::vector<float>& x, int64_t rows, int64_t columns, const machine::Machine& m,
             std::vector<std::string>* plans = nullptr) {
  Blob from(x.size() * 4), to(static_cast<size_t>(blob_layout(f, rows, columns).total), 0xcd);
  std::memcpy(from.data(), x.data(), from.size());
  const synth::Synthesis s = synth::synthesize_encode(f, rows, columns, m);
  std::vector<Blob> scratch;
  for (const int64_t bytes : s.scratch) scratch.emplace_back(static_cast<size_t>(bytes), 0xcd);
  for (const synth::Step& step : s.steps) {
    if (plans) plans->push_back(step.plan);
    std::vector<std::span<uint8_t>> buffers;
    for (const synth::Argument& a : step.arguments)
      buffers.emplace_back(a.from == synth::Argument::From::scratch ? scratch.at(static_cast<size_t>(a.index))
                           : a.index == 0                           ? from
                                                                    : to);
    EXPECT_EQ(loop_evaluator(m)(step.kernel, buffers).code, 0) << step.plan;
  }
  return to;
}

void check(const Format& f, const std::vector<std::pair<int64_t, int64_t>>& shapes) {
  for (const char* name : {"sm_90a", "gfx942"}) {
    const auto m = machine::find_machine(name);
    for (const auto& [rows, columns] : shapes)
      for (const Kind kind : {Kind::numbers, Kind::specials, Kind::zeros}) {
        const std::vector<float> x = values(rows * columns, kind, 5);
        const Blob want = encode(f, x, rows, columns), got = encoded(f, x, rows, columns, *m);
        size_t at = 0;
        while (at < want.size() && want[at] == got[at]) ++at;
        EXPECT_EQ(at, want.size()) << f.name << " " << name << " " << rows << "x" << columns << " kind "
                                   << static_cast<int>(kind) << ": byte " << at;
      }
  }
}

const Format& format(const char* name) {
  return *FormatLibrary::builtin().find(name);
}

TEST(EncodeLanes, RowsTilesAndTensorsAreTheCodecs) {
  for (const char* name : {"fp8_row", "fp8_row_p2", "int8_row", "fp8_e5m2_tensor", "int8"})
    check(format(name), {{1, 1}, {3, 7}, {5, 40}, {2, 1032}});
  for (const char* name : {"fp8_1x128_p2", "fp8_tile", "fp8_128x128_p2", "int8_1x128"})
    check(format(name), {{3, 7}, {3, 260}, {130, 136}});
}

TEST(EncodeLanes, BlocksAreTheCodecs) {
  for (const char* name :
       {"mxfp8_e4m3_up", "fp8_two_level", "int8_block", "mxfp4_up", "nvfp4_divided", "mxint8", "q8_0"})
    check(format(name), {{1, 32}, {3, 96}, {5, 320}});
}

TEST(EncodeLanes, TensorsAreFoundByManyBlocks) {
  const Format& f = format("fp8_tensor");
  const auto m = machine::find_machine("sm_90a");
  std::vector<float> x = values(260 * 256, Kind::numbers, 9);
  for (const bool odd : {false, true}) {
    if (odd) x[1000] = std::nanf("");
    std::vector<std::string> plans;
    EXPECT_EQ(encoded(f, x, 260, 256, *m, &plans), encode(f, x, 260, 256));
    ASSERT_EQ(plans.size(), 3u);
    EXPECT_NE(plans[0].find("blocks"), std::string::npos) << plans[0];
  }
}

// Lanes share what tells nothing of order, and no more.
TEST(EncodeLanes, OnlyMagnitudesAreShared) {
  const auto shares = [](const char* name, Level level, int64_t count) {
    return synth::shared_loop(*format(name).fit[ordinal(level)], count) != nullptr;
  };
  EXPECT_TRUE(shares("fp8_row", Level::row, synth::kAllValues));
  EXPECT_TRUE(shares("mxfp8_e4m3", Level::block, 32));
  EXPECT_FALSE(shares("mxfp8_e4m3", Level::block, 16));
  EXPECT_FALSE(shares("q4_0", Level::block, 32));  // the place of the largest counts
  EXPECT_FALSE(shares("q4_1", Level::block, 32));  // the least, too
}

}  // namespace
}  // namespace lumen::test
