// The grid of values that a matrix in a format can hold if only its codes change: for each group of elements, its
// decoded codes under the stored fields. Values on this grid are stored exactly. Proved by
// tests/model/compress/reconstruction/code_grid_test.cpp.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "model/compress/reconstruction/element_codes.h"
#include "run/engine/engine.h"

namespace lumen::model::compress {

// For each value the nearest grid values not above and not below it, and its position between them (0: low, 1: up).
// Beyond a group's range both are its end.
struct Neighbours {
  std::vector<float> low, up, share;
};

class CodeGrid {
 public:
  // Error where the format has no code per element.
  CodeGrid(run::Engine& engine, FormatRef f, int64_t rows, int64_t columns);

  // Copies the fields of a blob.
  void read(std::span<const uint8_t> blob);
  void find(std::span<const float> w, Neighbours* out) const;
  // The blob of values that are all on the grid (LUMEN_CHECK).
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
  // Records of one row whose codes count up in each group, starting at `first`, and a mask of the code bits.
  void pattern(int64_t first, std::vector<uint8_t>* bits, std::vector<uint8_t>* mask) const;
  void sort();

  run::Engine& engine_;
  const FormatRef format_;
  const int64_t rows_, columns_;
  ElementCodes codes_;
  int64_t span_ = 0, row_groups_ = 0, width_ = 0;  // width: codes of an element
  std::vector<uint8_t> blob_;
  // By group: ascending distinct values, and the code of each; padded.
  std::vector<float> values_;
  std::vector<uint16_t> code_of_;
  std::vector<int32_t> count_;
};

}  // namespace lumen::model::compress
