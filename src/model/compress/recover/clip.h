// Fields of a format fitted to values whose ranges are stretched or shrunk: below zero and above it by a factor of each
// group. Learned clipping for any format: its own fit chooses the fields, for clipped values; where the fit takes the
// least and the largest value these factors are OmniQuant's and AutoRound's. Proved by
// tests/model/compress/recover/clip_test.cpp.
#pragma once

#include <span>
#include <vector>

#include "model/compress/recover/code_grid.h"

namespace lumen::model {

class ClippedFit {
 public:
  // `w` and `importance` (of columns, of elements, or empty) outlive this.
  ClippedFit(run::Engine& engine, FormatRef f, int64_t rows, int64_t columns, std::span<const float> w,
             std::span<const float> importance);

  // By group of the grid; 1 at first.
  std::vector<float> below, above;
  // The format's own encoding of w under the factors: fields and codes.
  std::vector<uint8_t> fit() const;
  // Fits, and takes the fields over into the grid.
  void refit();
  CodeGrid& grid() { return grid_; }
  const CodeGrid& grid() const { return grid_; }

  // Gradients of a loss with respect to the logarithms of the factors, of what it has with respect to rounded values.
  // Values inside a group's range move as far as they lie from what they stand for (straight through the rounding),
  // those beyond it with the range's end.
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

}  // namespace lumen::model
