// Fits a format's fields to values with clipped ranges: each group's range below and above zero is multiplied by a
// factor. Learned clipping for any format: its own fit chooses the fields for the clipped values; where the fit uses
// minimum and maximum, the factors are those of OmniQuant and AutoRound. Proved by
// tests/model/compress/reconstruction/clip_test.cpp.
#pragma once

#include <span>
#include <vector>

#include "model/compress/reconstruction/code_grid.h"

namespace lumen::model::compress {

class ClippedFit {
 public:
  // `w` and `importance` (per column, per element, or empty) outlive this.
  ClippedFit(run::Engine& engine, FormatRef f, int64_t rows, int64_t columns, std::span<const float> w,
             std::span<const float> importance);

  // By group of the grid; 1 at first.
  std::vector<float> below, above;
  // The format's own encoding of w, clipped by the factors: fields and codes.
  std::vector<uint8_t> fit() const;
  // Fits, and copies the fields into the grid.
  void refit();
  CodeGrid& grid() { return grid_; }
  const CodeGrid& grid() const { return grid_; }

  // Turns a loss's gradients for rounded values into those for the logarithms of the factors. Inside a group's range
  // the derivative is the rounding error (straight-through estimator); values beyond it move with the end of the range.
  struct Slopes {
    std::vector<float> below, above;
  };
  void slopes(std::span<const float> w, std::span<const float> rounded, std::span<const float> gradient,
              Slopes* out) const;

 private:
  run::Engine& engine_;
  const FormatRef format_;
  const int64_t rows_, columns_;
  const std::span<const float> w_, importance_;
  CodeGrid grid_;
};

}  // namespace lumen::model::compress
