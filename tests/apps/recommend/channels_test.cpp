// needs: none. Channels in bits against formulas written out in double precision, bit for bit; plans as bytes.
#include "apps/recommend/channels.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "apps/recommend/interactions.h"
#include "base/error.h"

namespace lumen::recommend {
namespace {

// What the formulas say, element by element, without anything shared with the code.
std::vector<float> by_formula(const std::vector<float>& row, int bits) {
  std::vector<float> out(row.size(), 0.0F);
  if (bits == 0) return out;
  double largest = 0, sum = 0;
  for (const float w : row) {
    largest = std::fmax(largest, std::fabs(double{w}));
    sum += std::fabs(double{w});
  }
  if (bits == 1) {
    const float mean = sum / double(row.size());
    for (size_t k = 0; k < row.size(); ++k) out[k] = row[k] < 0 ? -mean : mean;
    return out;
  }
  const double most = std::exp2(bits - 1) - 1;
  double least = INFINITY;
  for (int i = 0; i < 16; ++i) {
    const float step = float((0.5 + 0.5 * i / 15) * largest / most);
    if (step == 0) continue;
    double error = 0;
    std::vector<float> now;
    for (const float w : row) {
      const double q = std::fmin(std::fmax(std::nearbyint(double{w} / step), -most), most);
      error += (w - q * step) * (w - q * step);
      now.push_back(float(q) * step);
    }
    if (error <= least) {  // of equals the largest
      least = error;
      out = now;
    }
  }
  return out;
}

std::vector<float> drawn_row(uint64_t seed, int64_t size) {
  Draws draws(seed);
  std::vector<float> row;
  for (int64_t i = 0; i < size; ++i) row.push_back(float(draws.uniform() - 0.5 + (i % 7 == 0 ? draws.uniform() : 0)));
  return row;
}

TEST(Channels, AreWhatTheFormulasSayBitForBit) {
  for (uint64_t seed = 0; seed < 40; ++seed)
    for (const int64_t size : {1, 5, 50, 64})
      for (int bits = 0; bits <= kMostBits; ++bits) {
        const std::vector<float> row = drawn_row(seed, size);
        const QuantizedChannel q = quantize_channel(row, bits);
        const std::vector<float> want = by_formula(row, bits);
        for (size_t k = 0; k < row.size(); ++k) {
          const float got = q.value(k);
          ASSERT_TRUE(got == want[k]) << seed << " " << size << " " << bits << " " << k << ": " << got << " "
                                      << want[k];
        }
      }
}

TEST(Channels, MoreBitsAreNearer) {
  const std::vector<float> row = drawn_row(3, 64);
  double before = 1e300;
  for (int bits = 0; bits <= kMostBits; ++bits) {
    const QuantizedChannel q = quantize_channel(row, bits);
    double error = 0;
    for (size_t k = 0; k < row.size(); ++k) error += std::pow(row[k] - q.value(k), 2);
    EXPECT_LT(error, before) << bits;
    before = error;
  }
}

TEST(Channels, ZerosAndNumbersTooSmall) {
  for (int bits = 0; bits <= kMostBits; ++bits)
    for (const float w : {0.0F, 1e-45F}) {
      const QuantizedChannel q = quantize_channel(std::vector<float>(8, w), bits);
      for (size_t k = 0; k < 8; ++k) EXPECT_TRUE(std::isfinite(q.value(k)) && std::fabs(q.value(k)) <= 2 * w) << bits;
    }
}

TEST(BitTables, AreReadAndRefused) {
  EXPECT_EQ(bit_table("normal").bits, (std::array<int, 4>{1, 2, 4, 4}));
  EXPECT_EQ(bit_table("0,3,3,8").bits, (std::array<int, 4>{0, 3, 3, 8}));
  for (const char* wrong : {"", "1,2,3", "1,2,3,9", "2,1,4,4", "1,2,4,4,4", "a,b,c,d", "1,2,4,4x", "-1,2,4,4"})
    EXPECT_THROW(bit_table(wrong), Error) << wrong;
}

Plan drawn_plan(uint64_t seed) {
  Draws draws(seed);
  Plan plan;
  for (int64_t i = 1 + draws.below(6); i > 0; --i) {
    plan.layers.push_back(1 + draws.below(70));
    for (int c = 0; c < plan.layers.back(); ++c) plan.classes.push_back(draws.below(4));
  }
  return plan;
}

TEST(Plans, GoThereAndBack) {
  for (uint64_t seed = 0; seed < 200; ++seed) {
    const Plan plan = drawn_plan(seed);
    const std::string bytes = pack_plan(plan);
    EXPECT_EQ(bytes.size(), 4 + 2 * plan.layers.size() + (plan.classes.size() + 3) / 4);
    EXPECT_EQ(unpack_plan(bytes, "plan"), plan);
    for (size_t length = 0; length < bytes.size(); ++length)
      EXPECT_THROW(unpack_plan(bytes.substr(0, length), "plan"), Error);
    EXPECT_THROW(unpack_plan(bytes + '\0', "plan"), Error);
  }
}

TEST(Plans, HaveTheBytesThatAreWritten) {
  const Plan plan{{2, 3}, {3, 0, 1, 2, 1}};
  EXPECT_EQ(pack_plan(plan), std::string("\x01\x00\x02\x00\x02\x00\x03\x00\x93\x01", 10));
  EXPECT_THROW(unpack_plan(std::string("\x01\x00\x02\x00\x02\x00\x03\x00\x93\x05", 10), "plan"),
               Error);                                                                       // behind the last
  EXPECT_THROW(unpack_plan(std::string("\x02\x00\x01\x00\x01\x00\x00", 7), "plan"), Error);  // version
  EXPECT_THROW(unpack_plan(std::string("\x01\x00\x01\x00\x00\x00", 6), "plan"), Error);      // no channels
}

TEST(Plans, HaveBitsByWeights) {
  const std::vector<PlannedMatrix> matrices = {{"a", 2, 10}, {"b", 2, 30}};
  const Plan plan{{2, 2}, {0, 3, 3, 0}};
  EXPECT_DOUBLE_EQ(average_bits(plan, matrices, bit_table("1,2,4,4")), (10 * 1 + 10 * 4 + 30 * 4 + 30 * 1) / 80.0);
  EXPECT_EQ(packed_bytes(plan, matrices, bit_table("0,2,4,4")), (5 + 2) + (15 + 2));
  EXPECT_THROW(require_plan_of(Plan{{2}, {0, 0}}, matrices), Error);
  EXPECT_THROW(require_plan_of(Plan{{2, 3}, {0, 0, 0, 0, 0}}, matrices), Error);
}

}  // namespace
}  // namespace lumen::recommend
