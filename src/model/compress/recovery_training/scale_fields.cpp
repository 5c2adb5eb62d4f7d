#include "model/compress/recovery_training/scale_fields.h"

#include <algorithm>
#include <cmath>

#include "base/check.h"
#include "base/threads/team.h"
#include "number/codec/codec.h"

namespace lumen::model::compress {
namespace {

int64_t records_of(const Format& f, Level level, int64_t rows, int64_t columns) {
  if (level == Level::block) return rows * (columns / f.block);
  return level == Level::row ? rows : 1;
}

int64_t place_of(const Format& f, const BlobLayout& layout, Level level, int64_t columns, int64_t record) {
  if (level == Level::row) return layout.section[1] + record * f.row_bytes;
  if (level == Level::tensor) return layout.section[3];
  const int64_t per_row = columns / f.block;
  return layout.section[0] + record / per_row * layout.row_stride + record % per_row * f.block_bytes;
}

// Multiplies a field's entry in a record by a factor.
void multiply(const Field& field, uint8_t* record, int64_t entry, double factor) {
  const double now = field_decode(field.type, field.layout.read(record, entry));
  if (now != 0 && std::isfinite(now)) field.layout.write(record, entry, field_encode(field.type, now * factor));
}

// One row of numbers in the format, on which fields are tested.
class Probe {
 public:
  explicit Probe(const Format& f) : f_(f), columns_(2 * f.block), layout_(blob_layout(f, 1, columns_)) {
    std::vector<float> x(columns_);
    uint32_t state = 1;
    for (float& v : x) {
      state = state * 1664525 + 1013904223;
      v = 0.5F * (1 + (state >> 28)) * ((state >> 20 & 1) != 0 ? 1 : -1);
    }
    blob_ = encode(f, x, 1, columns_);
    values_ = decode(f, blob_, 1, columns_);
  }

  // Elements of the first record that double when an entry of some fields doubles (-1: all entries); empty where any
  // element changes otherwise.
  std::vector<bool> doubled(Level level, const std::vector<int>& fields, int64_t entry) const {
    std::vector<uint8_t> blob = blob_;
    for (const int k : fields)
      for (int64_t i = 0; i < f_.fields[k].count; ++i)
        if (entry < 0 || i == entry)
          multiply(f_.fields[k], blob.data() + place_of(f_, layout_, level, columns_, 0), i, 2);
    const std::vector<float> now = decode(f_, blob, 1, columns_);
    std::vector<bool> out(level == Level::block ? f_.block : columns_);
    for (size_t c = 0; c < now.size(); ++c) {
      const bool twice = now[c] == 2 * values_[c];
      if (c < out.size()) out[c] = twice;
      if ((c >= out.size() || !twice) && now[c] != values_[c]) return {};
    }
    return out;
  }

 private:
  const Format& f_;
  const int64_t columns_;
  const BlobLayout layout_;
  std::vector<uint8_t> blob_;
  std::vector<float> values_;
};

// Fields of a level that could be scales.
std::vector<int> candidates(const Format& f, Level level) {
  std::vector<int> out;
  for (int k = 0; k < std::ssize(f.fields); ++k) {
    const Field& field = f.fields[k];
    const bool is_code = k == f.code_field || (level == Level::block && field.count == f.block && f.block > 1);
    if (field.level == level && field.type.is_float && field.type.mantissa_bits > 0 && !is_code) out.push_back(k);
  }
  return out;
}

// The entry of each element; nullopt where entries do not partition a record's elements.
std::optional<std::vector<int32_t>> entries_of(const Probe& probe, const Format& f, const ScaleFields& s) {
  std::vector<int32_t> entry(f.block, -1);
  for (int64_t i = 0; i < s.count; ++i) {
    const std::vector<bool> twice = probe.doubled(s.level, s.fields, i);
    if (twice.empty()) return {};
    for (int64_t e = 0; e < f.block; ++e)
      if (twice[e]) entry[e] = i;
  }
  if (std::ranges::find(entry, -1) != entry.end()) return {};
  return entry;
}

std::optional<ScaleFields> scales_of(const Probe& probe, const Format& f, Level level) {
  const std::vector<int> all = candidates(f, level);
  LUMEN_CHECK(all.size() < 16);
  std::vector<uint32_t> choices;
  for (uint32_t bits = 1; bits < 1U << all.size(); ++bits) choices.push_back(bits);
  std::ranges::stable_sort(choices, {}, [](uint32_t bits) { return std::popcount(bits); });
  for (const uint32_t bits : choices) {
    ScaleFields s;
    s.level = level;
    for (size_t k = 0; k < all.size(); ++k)
      if ((bits >> k & 1) != 0) s.fields.push_back(all[k]);
    s.count = f.fields[s.fields[0]].count;
    if (std::ranges::any_of(s.fields, [&](int k) { return f.fields[k].count != s.count; })) continue;
    const std::vector<bool> twice = probe.doubled(level, s.fields, -1);
    if (twice.empty() || std::ranges::find(twice, false) != twice.end()) continue;
    if (level != Level::block) {
      if (s.count == 1) return s;
    } else if (auto entry = entries_of(probe, f, s)) {
      s.entry = std::move(*entry);
      return s;
    }
  }
  return {};
}

}  // namespace

std::optional<ScaleFields> find_scale_fields(const Format& f, std::string* why) {
  if (!f.encodes()) {
    *why = "it can be read but not written";
    return {};
  }
  const Probe probe(f);
  for (const Level level : {Level::block, Level::row, Level::tensor})
    if (auto found = scales_of(probe, f, level)) return found;
  *why = "none of its fields is a float that all values of a group are multiplied by";
  return {};
}

ScaledBlob::ScaledBlob(FormatRef f, ScaleFields scales, int64_t rows, int64_t columns, std::span<const uint8_t> blob)
    : format_(std::move(f)),
      scales_(std::move(scales)),
      rows_(rows),
      columns_(columns),
      blob_(blob),
      layout_(blob_layout(*format_, rows, columns)),
      records_(records_of(*format_, scales_.level, rows, columns)) {
  LUMEN_CHECK(std::ssize(blob) >= layout_.total);
}

int64_t ScaledBlob::place(int64_t record) const {
  return place_of(*format_, layout_, scales_.level, columns_, record);
}

std::vector<uint8_t> ScaledBlob::times(std::span<const float> factors) const {
  LUMEN_CHECK(std::ssize(factors) == groups());
  std::vector<uint8_t> out(blob_.begin(), blob_.end());
  parallel_for(0, records_, {.is_worth = records_ > 4096}, [&](int64_t r) {
    for (const int k : scales_.fields)
      for (int64_t i = 0; i < scales_.count; ++i)
        multiply(format_->fields[k], out.data() + place(r), i, factors[r * scales_.count + i]);
  });
  return out;
}

std::vector<float> ScaledBlob::sums(std::span<const float> x, std::span<const float> y) const {
  std::vector<double> by_row;  // of the tensor's single group
  std::vector<float> out(groups(), 0);
  const bool whole = scales_.level == Level::tensor;
  if (whole) by_row.assign(rows_, 0);
  // Groups lie within a row: each is summed by one thread, in order.
  parallel_for(0, rows_, [&](int64_t r) {
    std::vector<double> sum(scales_.level == Level::block ? columns_ / format_->block * scales_.count : 1, 0);
    for (int64_t c = 0; c < columns_; ++c) {
      const int64_t g =
          scales_.level == Level::block ? c / format_->block * scales_.count + scales_.entry[c % format_->block] : 0;
      sum[g] += double{x[r * columns_ + c]} * y[r * columns_ + c];
    }
    if (whole)
      by_row[r] = sum[0];
    else
      for (size_t g = 0; g < sum.size(); ++g) out[r * sum.size() + g] = sum[g];
  });
  double all = 0;
  for (const double s : by_row) all += s;
  if (whole) out[0] = all;
  return out;
}

}  // namespace lumen::model::compress
