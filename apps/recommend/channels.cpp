#include "apps/recommend/channels.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>

#include "base/check.h"
#include "base/error.h"

namespace lumen::recommend {
namespace {

constexpr int kClips = 16;
constexpr double kLeastClip = 0.5;

double rounded(double value, double scale, double most) {
  return std::clamp(std::nearbyint(value / scale), -most, most);
}

double squared_error(std::span<const float> row, double scale, double most) {
  double sum = 0;
  for (const double w : row) {
    const double off = w - rounded(w, scale, most) * scale;
    sum += off * off;
  }
  return sum;
}

uint16_t number_at(std::string_view bytes, size_t at) {
  const auto byte = [&](size_t i) { return std::to_integer<int>(std::byte(bytes[i])); };
  return byte(at) | byte(at + 1) << 8;
}

void put_number(std::string& out, uint16_t number) {
  out.push_back(number & 0xff);
  out.push_back(number >> 8);
}

// Calls `each` with the table's bits and the columns of every channel.
template <class Each>
void each_channel(const Plan& plan, std::span<const PlannedMatrix> matrices, const BitTable& table, const Each& each) {
  require_plan_of(plan, matrices);
  size_t at = 0;
  for (const PlannedMatrix& m : matrices)
    for (int64_t c = 0; c < m.channels; ++c) each(table.bits[plan.classes[at++]], m.columns);
}

}  // namespace

QuantizedChannel quantize_channel(std::span<const float> row, int bits) {
  LUMEN_CHECK(bits >= 0 && bits <= kMostBits);
  QuantizedChannel out;
  out.codes.resize(row.size());
  if (bits == 0 || row.empty()) return out;
  double largest = 0, sum = 0;
  for (const double w : row) {
    largest = std::max(largest, std::abs(w));
    sum += std::abs(w);
  }
  if (bits == 1) {
    out.scale = sum / std::ssize(row);
    std::transform(row.begin(), row.end(), out.codes.begin(), [](float w) { return w < 0 ? -1 : 1; });
    return out;
  }
  if (largest == 0) return out;
  const double most = (1 << (bits - 1)) - 1;
  double best = std::numeric_limits<double>::infinity();
  for (int i = kClips - 1; i >= 0; --i) {
    const double clip = kLeastClip + (1 - kLeastClip) * i / (kClips - 1);
    const float scale = clip * largest / most;
    if (scale == 0) continue;  // underflows in f32
    const double error = squared_error(row, scale, most);
    if (error >= best) continue;
    best = error;
    out.scale = scale;
  }
  if (out.scale == 0) return out;
  std::transform(row.begin(), row.end(), out.codes.begin(), [&](float w) { return rounded(w, out.scale, most); });
  return out;
}

const std::vector<BitTable>& bit_tables() {
  static const std::vector<BitTable> tables = {
      {"tight", {0, 2, 2, 4}}, {"normal", {1, 2, 4, 4}}, {"roomy", {2, 4, 4, 8}}};
  return tables;
}

BitTable bit_table(const std::string& text) {
  for (const BitTable& table : bit_tables())
    if (table.name == text) return table;
  BitTable out{text, {}};
  const char *at = text.data(), *end = at + text.size();
  for (int k = 0; k < kClasses; ++k) {
    const auto [next, code] = std::from_chars(at, end, out.bits[k]);
    const bool good = code == std::errc() && out.bits[k] >= 0 && out.bits[k] <= kMostBits &&
                      (k == 0 || out.bits[k] >= out.bits[k - 1]) &&
                      (k + 1 < kClasses ? next < end && *next == ',' : next == end);
    if (!good)
      throw Error(Exit::usage, fmt::format("'{}' is no table of bits", text),
                  "tight, normal, roomy, or the bits of the four classes, rising: 1,2,4,4");
    at = next + 1;
  }
  return out;
}

double average_bits(const Plan& plan, std::span<const PlannedMatrix> matrices, const BitTable& table) {
  double bits = 0, weights = 0;
  each_channel(plan, matrices, table, [&](int b, int64_t columns) {
    bits += 1.0 * b * columns;
    weights += columns;
  });
  return weights == 0 ? 0 : bits / weights;
}

int64_t packed_bytes(const Plan& plan, std::span<const PlannedMatrix> matrices, const BitTable& table) {
  int64_t bytes = 0;
  each_channel(plan, matrices, table,
               [&](int b, int64_t columns) { bytes += (b * columns + 7) / 8 + (b > 0 ? 2 : 0); });
  return bytes;
}

std::string pack_plan(const Plan& plan) {
  std::string out;
  LUMEN_CHECK(plan.layers.size() <= kMostPlannedMatrices && plan.classes.size() <= kMostPlannedChannels);
  put_number(out, kPlanVersion);
  put_number(out, plan.layers.size());
  for (const uint16_t channels : plan.layers) put_number(out, channels);
  const size_t head = out.size();
  out.resize(head + (plan.classes.size() + 3) / 4);
  for (size_t i = 0; i < plan.classes.size(); ++i) out[head + i / 4] |= plan.classes[i] << i % 4 * 2;
  return out;
}

Plan unpack_plan(std::string_view bytes, const std::string& name) {
  const auto bad = [&](const std::string& why) { return user_error("{}: no plan: {}", name, why); };
  if (bytes.size() < 4) throw bad("too short");
  if (const uint16_t version = number_at(bytes, 0); version != kPlanVersion)
    throw bad(fmt::format("version {}, but only {} is supported", version, kPlanVersion));
  const size_t count = number_at(bytes, 2);
  if (count == 0 || count > kMostPlannedMatrices) throw bad(fmt::format("{} matrices", count));
  const size_t head = 4 + 2 * count;
  if (bytes.size() < head) throw bad("it ends among the numbers of channels");
  Plan plan;
  size_t channels = 0;
  for (size_t i = 0; i < count; ++i) {
    plan.layers.push_back(number_at(bytes, 4 + 2 * i));
    if (plan.layers.back() == 0) throw bad(fmt::format("matrix {} has no channels", i));
    channels += plan.layers.back();
  }
  if (channels > kMostPlannedChannels) throw bad(fmt::format("{} channels", channels));
  if (bytes.size() != head + (channels + 3) / 4)
    throw bad(fmt::format("{} bytes for {} channels", bytes.size() - head, channels));
  for (size_t i = 0; i < channels; ++i) plan.classes.push_back(bytes[head + i / 4] >> i % 4 * 2 & 3);
  if (pack_plan(plan) != bytes) throw bad("bits after the last channel");
  return plan;
}

void require_plan_of(const Plan& plan, std::span<const PlannedMatrix> matrices) {
  const bool same = std::equal(plan.layers.begin(), plan.layers.end(), matrices.begin(), matrices.end(),
                               [](uint16_t channels, const PlannedMatrix& m) { return channels == m.channels; });
  int64_t channels = 0;
  for (const PlannedMatrix& m : matrices) channels += m.channels;
  if (!same || std::ssize(plan.classes) != channels)
    throw user_error("the plan is of {} matrices and {} channels, the model has {} and {}", plan.layers.size(),
                     plan.classes.size(), matrices.size(), channels);
}

}  // namespace lumen::recommend
