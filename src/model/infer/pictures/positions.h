// Positions of tokens on three axes: time, lines and columns. A text's tokens are at one position on all three. A
// picture's rows have the time at which it begins, and there the line and column of each; the text after it goes on
// beyond the larger of its sides. Without axes of pictures, positions count tokens. Proved by
// tests/model/infer/pictures/pictures_test.cpp.
#pragma once

#include <array>

#include "model/infer/pictures/pictures.h"

namespace lumen::model::infer {

class PicturePositions {
 public:
  // Appends the positions of the next tokens. `by_grid`: pictures have lines and columns.
  void extend(const PictureBook& book, std::span<const text::TokenId> tokens, bool by_grid);
  void shorten(int64_t count);
  const std::array<int32_t, 3>& at(int64_t token) const { return at_.at(token); }

 private:
  std::vector<std::array<int32_t, 3>> at_;
  std::vector<int32_t> next_;  // after each token, the position that a token of text would have
};

}  // namespace lumen::model::infer
