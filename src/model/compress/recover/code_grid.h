// The numbers that a matrix in a format could hold if only its codes changed: for each group of elements those of its
// codes under the fields that are stored. Values move on this grid, and what they become is stored exactly. Proved by
// tests/model/compress/recover/code_grid_test.cpp.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "model/compress/recover/element_codes.h"
#include "run/engine/engine.h"

namespace lumen::model {

// For each value the nearest numbers not above and not below it, and where between them it lies (0: low, 1: up). What
// lies beyond a group's numbers has its last one as both.
struct Neighbours {
  std::vector<float> low, up, share;
};

class CodeGrid {
 public:
  // Error where the format has no codes of elements.
  CodeGrid(run::Engine& engine, FormatRef f, int64_t rows, int64_t columns);

  // Takes over the fields of a blob.
  void read(std::span<const uint8_t> blob);
  void find(std::span<const float> w, Neighbours* out) const;
  // The blob of values that are all numbers of their groups (LUMEN_CHECK).
  std::vector<uint8_t> store(std::span<const float> values) const;

  int64_t groups() const { return rows_ * row_groups_; }
  int64_t group_of(int64_t row, int64_t column) const {
    return row * row_groups_ + column / span_ * codes_.groups +
           (codes_.group.empty() ? 0 : codes_.group[column % span_]);
  }
  // The least and the largest number of a group.
  float least(int64_t group) const { return values_[group * width_]; }
  float largest(int64_t group) const { return values_[group * width_ + count_[group] - 1]; }

 private:
  int64_t place_in_group(int64_t column) const {
    return codes_.index.empty() ? column % span_ : codes_.index[column % span_];
  }
  // Records of one row with codes by place in group, from `first` on, and which of their bits are codes.
  void pattern(int64_t first, std::vector<uint8_t>* bits, std::vector<uint8_t>* mask) const;
  void sort();

  run::Engine& engine_;
  const FormatRef format_;
  const int64_t rows_, columns_;
  ElementCodes codes_;
  int64_t span_ = 0, row_groups_ = 0, width_ = 0;  // width: codes of an element
  std::vector<uint8_t> blob_;
  // By group: rising numbers, no two alike, and the code of each; padded.
  std::vector<float> values_;
  std::vector<uint16_t> code_of_;
  std::vector<int32_t> count_;
};

}  // namespace lumen::model
