#include "model/infer/pictures/positions.h"

#include <algorithm>

#include "base/check.h"

namespace lumen::model::infer {

void PicturePositions::extend(const PictureBook& book, std::span<const text::TokenId> tokens, bool by_grid) {
  for (const text::TokenId id : tokens) {
    const int32_t next = next_.empty() ? 0 : next_.back();
    if (!by_grid || !is_picture(id)) {
      at_.push_back({next, next, next});
      next_.push_back(next + 1);
      continue;
    }
    const std::optional<PictureBook::Row> row = book.find(id);
    LUMEN_CHECK(row, "token {} is of no picture", id);
    const Picture& picture = *row->picture;
    // The first row begins the picture; the others have its time.
    const int32_t time = row->number == 0 || at_.empty() ? next : at_.back()[0];
    at_.push_back({time, time + int32_t(row->number / picture.columns), time + int32_t(row->number % picture.columns)});
    next_.push_back(time + int32_t(std::max(picture.lines, picture.columns)));
  }
}

void PicturePositions::shorten(int64_t count) {
  if (count >= std::ssize(at_)) return;
  at_.resize(count);
  next_.resize(count);
}

}  // namespace lumen::model::infer
