// Channels (rows) of matrices quantized to few bits each, and plans: a class for every channel, which a device's table
// maps to bits. Classes are 0 (least important) to 3. Proved by tests/apps/recommend/channels_test.cpp and
// tests/fuzz/apps/plan_fuzz.cpp.
//
// b >= 2   w' = q d,  q = round(w / d) clamped to +-(2^(b-1) - 1),  d = c max|w| / (2^(b-1) - 1); c is the one of 16
//          numbers from 0.5 to 1 with the least sum of squares of w - w'; of equals the largest
// b == 1   w' = sign(w) mean|w|, the sign of 0 being 1
// b == 0   w' = 0: the channel is absent
// Everything is computed in double precision; d is rounded to f32, as it is sent and stored; round() rounds ties to
// even.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace lumen::recommend {

inline constexpr int kClasses = 4;
inline constexpr int kMostBits = 8;

// A row quantized to `bits`, 0 to 8.
struct QuantizedChannel {
  float scale = 0;            // d; for one bit mean|w|
  std::vector<int8_t> codes;  // q; for one bit -1 or 1
  float value(size_t k) const { return codes[k] * scale; }
};
QuantizedChannel quantize_channel(std::span<const float> row, int bits);

// Bits by class, as a device chooses them.
struct BitTable {
  std::string name;
  std::array<int, kClasses> bits{};
};
const std::vector<BitTable>& bit_tables();  // tight, normal, roomy
// One of those, or four comma-separated numbers, 0 to 8, not descending. Error (usage).
BitTable bit_table(const std::string& text);

// A matrix of the backbone, or several of one shape, whose channels have classes.
struct PlannedMatrix {
  std::string name;
  int64_t channels = 0, columns = 0;
};

// A class for every channel of every matrix, in their order.
struct Plan {
  std::vector<uint16_t> layers;  // channels of each matrix
  std::vector<uint8_t> classes;
  friend bool operator==(const Plan&, const Plan&) = default;
};
// Average bits per weight; and bytes of all weights with a 16-bit scale for each channel present.
double average_bits(const Plan& plan, std::span<const PlannedMatrix> matrices, const BitTable& table);
int64_t packed_bytes(const Plan& plan, std::span<const PlannedMatrix> matrices, const BitTable& table);

// The wire format, little-endian: u16 version, u16 matrices, u16 channels of each, then two bits for each channel, the
// lowest bits first; padding bits after the last channel are 0.
inline constexpr uint16_t kPlanVersion = 1;
inline constexpr size_t kMostPlannedMatrices = 4096, kMostPlannedChannels = 1 << 20;
std::string pack_plan(const Plan& plan);
// Error where the bytes are not a valid plan; `name` is used in the message.
Plan unpack_plan(std::string_view bytes, const std::string& name);
// Error where the plan is for another backbone.
void require_plan_of(const Plan& plan, std::span<const PlannedMatrix> matrices);

}  // namespace lumen::recommend
