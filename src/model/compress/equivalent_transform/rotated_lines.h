// The lines of a parameter that a site rotates: rows of a matrix, columns, or parts of them. Lines of one block with
// the same element offsets form a panel, which can be copied out as a matrix [lines, width], multiplied, and copied
// back. Proved by tests/model/compress/equivalent_transform/rules_test.cpp.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "graph/equivalence/rotation_sites.h"
#include "model/compress/equivalent_transform/rotation.h"

namespace lumen::model::compress {

class RotatedLines {
 public:
  // `width`: of the site.
  RotatedLines(const graph::RotatedParameter& change, const graph::Shape& shape, int64_t width);

  struct Panel {
    int64_t block = 0;
    int64_t lines = 0, between_lines = 0;  // count, and stride between line starts
    std::vector<int64_t> places;           // element offsets from a line's start
  };
  const std::vector<Panel>& panels() const { return panels_; }
  int64_t width() const { return width_; }

  // Lines [first, first + count) of a panel, to or from a matrix [count, width].
  template <class Number>
  void take(const Panel& p, int64_t first, int64_t count, std::span<const float> values,
            std::span<Number> lines) const {
    for (int64_t l = 0; l < count; ++l)
      for (int64_t i = 0; i < width_; ++i) lines[l * width_ + i] = values[(first + l) * p.between_lines + p.places[i]];
  }
  template <class Number>
  void put(const Panel& p, int64_t first, int64_t count, std::span<const Number> lines, std::span<float> values) const {
    for (int64_t l = 0; l < count; ++l)
      for (int64_t i = 0; i < width_; ++i) values[(first + l) * p.between_lines + p.places[i]] = lines[l * width_ + i];
  }

  // Multiplies every line by its block's rotation, in f64; a single rotation serves all blocks.
  void apply(std::span<float> values, std::span<const Rotation> rotations) const;

 private:
  int64_t width_;
  std::vector<Panel> panels_;
};

}  // namespace lumen::model::compress
