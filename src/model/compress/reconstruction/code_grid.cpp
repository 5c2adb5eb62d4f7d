#include "model/compress/reconstruction/code_grid.h"

#include <algorithm>
#include <cmath>

#include "base/check.h"
#include "base/error.h"
#include "base/threads/team.h"

namespace lumen::model::compress {

CodeGrid::CodeGrid(run::Engine& engine, FormatRef f, int64_t rows, int64_t columns)
    : engine_(engine), format_(std::move(f)), rows_(rows), columns_(columns) {
  std::string why;
  if (!find_element_codes(*format_, &codes_, &why)) throw user_error("'{}': {}", format_->name, why);
  span_ = codes_.span(*format_, columns_);
  row_groups_ = (columns_ + span_ - 1) / span_ * codes_.groups;
  width_ = int64_t{1} << codes_.bits;
}

void CodeGrid::pattern(int64_t first, std::vector<uint8_t>* bits, std::vector<uint8_t>* mask) const {
  const Layout& layout = format_->fields[codes_.field].layout;
  const int64_t stride = blob_layout(*format_, rows_, columns_).row_stride;
  bits->assign(stride, 0);
  mask->assign(stride, 0);
  for (int64_t c = 0; c < columns_; ++c) {
    const int64_t record = c / format_->block * format_->block_bytes;
    layout.write(bits->data() + record, c % format_->block, std::min(first + place_in_group(c), width_ - 1));
    layout.write(mask->data() + record, c % format_->block, width_ - 1);
  }
}

void CodeGrid::read(std::span<const uint8_t> blob) {
  blob_.assign(blob.begin(), blob.end());
  const BlobLayout layout = blob_layout(*format_, rows_, columns_);
  values_.assign(groups() * width_, NAN);
  code_of_.resize(groups() * width_);
  count_.resize(groups());
  // Each element of a group decodes one code; with more codes than elements, several passes are needed.
  std::vector<int64_t> sizes(row_groups_, 0);
  for (int64_t c = 0; c < columns_; ++c) {
    int64_t& size = sizes[group_of(0, c)];
    size = std::max(size, place_in_group(c) + 1);
  }
  const int64_t least = *std::ranges::min_element(sizes);
  std::vector<uint8_t> bits, mask;
  for (int64_t first = 0; first < width_; first += least) {
    pattern(first, &bits, &mask);
    parallel_for(0, rows_, [&](int64_t r) {
      uint8_t* row = blob_.data() + r * layout.row_stride;
      for (int64_t b = 0; b < layout.row_stride; ++b) row[b] = (row[b] & ~mask[b]) | bits[b];
    });
    const std::vector<float> decoded = engine_.decode(format_, blob_.data(), rows_, columns_);
    parallel_for(0, rows_, [&](int64_t r) {
      for (int64_t c = 0; c < columns_; ++c) {
        const int64_t code = first + place_in_group(c);
        if (code < width_) values_[group_of(r, c) * width_ + code] = decoded[r * columns_ + c];
      }
    });
  }
  sort();
}

void CodeGrid::sort() {
  parallel_for(0, groups(), [&](int64_t g) {
    float* values = values_.data() + g * width_;
    uint16_t* codes = code_of_.data() + g * width_;
    std::vector<std::pair<float, uint16_t>> all;
    for (int64_t c = 0; c < width_; ++c)
      if (std::isfinite(values[c])) all.emplace_back(values[c] == 0 ? 0.0F : values[c], c);
    if (!std::ranges::is_sorted(all)) std::ranges::sort(all);
    int32_t count = 0;
    for (const auto& [value, code] : all) {
      if (count > 0 && values[count - 1] == value) continue;
      values[count] = value;
      codes[count++] = code;
    }
    count_[g] = count;
  });
  for (const int32_t count : count_) LUMEN_CHECK(count > 0, "a group of '{}' holds no number", format_->name);
}

void CodeGrid::find(std::span<const float> w, Neighbours* out) const {
  out->low.resize(w.size());
  out->up.resize(w.size());
  out->share.resize(w.size());
  parallel_for(0, rows_, [&](int64_t r) {
    for (int64_t c = 0; c < columns_; ++c) {
      const int64_t i = r * columns_ + c, g = group_of(r, c);
      const float* values = values_.data() + g * width_;
      const float* above = std::upper_bound(values, values + count_[g], w[i]);
      const bool beyond = above == values || above == values + count_[g];
      out->low[i] = above == values ? values[0] : above[-1];
      out->up[i] = beyond ? out->low[i] : *above;
      out->share[i] = beyond ? 0 : (w[i] - out->low[i]) / (out->up[i] - out->low[i]);
    }
  });
}

std::vector<uint8_t> CodeGrid::store(std::span<const float> values) const {
  std::vector<uint8_t> out = blob_;
  const Layout& layout = format_->fields[codes_.field].layout;
  const int64_t stride = blob_layout(*format_, rows_, columns_).row_stride;
  std::atomic<int64_t> missing = 0;
  parallel_for(0, rows_, [&](int64_t r) {
    for (int64_t c = 0; c < columns_; ++c) {
      const int64_t g = group_of(r, c);
      const float* all = values_.data() + g * width_;
      const float value = values[r * columns_ + c];
      const int64_t at = std::lower_bound(all, all + count_[g], value) - all;
      const bool there = at < count_[g] && all[at] == value;
      if (!there) {
        ++missing;
        continue;
      }
      uint8_t* record = out.data() + r * stride + c / format_->block * format_->block_bytes;
      layout.write(record, c % format_->block, code_of_[g * width_ + at]);
    }
  });
  LUMEN_CHECK(missing == 0, "{} values of '{}' are none of its numbers", missing.load(), format_->name);
  return out;
}

}  // namespace lumen::model::compress
