// The places of one field's entries in its tensor, by row and column of the weight: for readers and writers.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "model/arch/checkpoint/packed/scheme.h"

namespace lumen::model::arch {

class Places {
 public:
  struct Axis {
    std::string name;
    int64_t words = 1, step = 1;  // number of words; rows or columns per entry
    bool packed = false;
  };

  Places() = default;
  // `axes`: those of the scheme, with adjacent ones of equal name merged.
  Places(const Scheme::Field& field, std::vector<Axis> axes, int word_bits, int bits, int64_t columns)
      : order_(field.order), axes_(std::move(axes)), word_bits_(word_bits), bits_(bits), columns_(columns) {
    line_ = axes_[0].packed ? 0 : 1;
    stride_ = line_ + 1 == std::ssize(axes_) ? 1 : axes_.back().words;
    is_packed_ = std::any_of(axes_.begin(), axes_.end(), [](const Axis& a) { return a.packed; });
  }

  const std::vector<Axis>& axes() const { return axes_; }
  int word_bits() const { return word_bits_; }
  int bits() const { return bits_; }
  bool is_flat() const { return axes_[0].name == "flat"; }
  int64_t words() const {
    int64_t out = 1;
    for (const Axis& a : axes_) out *= a.words;
    return out;
  }

  // The index of an entry's word, where words are not packed.
  int64_t index(int64_t row, int64_t column) const {
    const auto at = entry(row, column);
    return axes_.size() == 1 ? at[0] : at[0] * axes_[1].words + at[1];
  }

  // Calls part(bit, count, value_bit): `count` bits of the entry from value_bit on are at `bit` of the tensor. There
  // are two parts where an entry crosses a word boundary.
  template <typename Part>
  void parts(int64_t row, int64_t column, Part part) const {
    if (!is_packed_) return part(index(row, column) * word_bits_, word_bits_, 0);
    // The packed axis is a sequence of words that begins at `first` and has the stride `stride_`.
    const auto at = entry(row, column);
    const int64_t first = axes_.size() == 1 ? 0 : line_ == 1 ? at[0] * axes_[1].words : at[1];
    int64_t place = at[line_];
    if (!order_.empty()) {
      const auto group = std::ssize(order_);
      place = place / group * group + order_[place % group];
    }
    const auto bit_at = [&](int64_t bit) {
      return (first + bit / word_bits_ * stride_) * word_bits_ + bit % word_bits_;
    };
    const int64_t begin = place * bits_;
    const auto here = static_cast<int>(std::min<int64_t>(bits_, word_bits_ - begin % word_bits_));
    part(bit_at(begin), here, 0);
    if (here < bits_) part(bit_at(begin + here), bits_ - here, here);
  }

 private:
  std::array<int64_t, 2> entry(int64_t row, int64_t column) const {
    std::array<int64_t, 2> at{};
    for (size_t a = 0; a < axes_.size(); ++a)
      at[a] = (axes_[a].name == "out" ? row : axes_[a].name == "in" ? column : row * columns_ + column) / axes_[a].step;
    return at;
  }

  std::vector<int64_t> order_;
  std::vector<Axis> axes_;
  int word_bits_ = 32, bits_ = 32;
  int64_t columns_ = 1;
  int64_t line_ = 0, stride_ = 1;
  bool is_packed_ = false;
};

}  // namespace lumen::model::arch
