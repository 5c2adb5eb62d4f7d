#include "model/infer/pictures/pictures.h"

#include <algorithm>

#include "base/check.h"

namespace lumen::model::infer {
namespace {

text::TokenId id_of(const Hash& picture, uint64_t row, uint64_t attempt) {
  const uint64_t parts[] = {picture.low, picture.high, row, attempt};
  constexpr uint64_t kBits = 0x7fffffff;
  return -1 - text::TokenId(hash_bytes(parts, sizeof parts).low & kBits);
}

}  // namespace

bool has_pictures(std::span<const text::TokenId> tokens) {
  return std::ranges::any_of(tokens, is_picture);
}

PictureRef PictureBook::add(Picture given) {
  LUMEN_CHECK(given.lines > 0 && given.columns > 0 && !given.rows.empty());
  const std::lock_guard lock(mutex_);
  for (const auto& held : pictures_)
    if (PictureRef picture = held.lock(); picture && picture->hash == given.hash) return picture;
  if (rows_.size() > 2 * swept_ + 4096) {
    std::erase_if(pictures_, [](const auto& held) { return held.expired(); });
    std::erase_if(rows_, [](const auto& entry) { return entry.second.picture.expired(); });
    swept_ = rows_.size();
  }
  const auto picture = std::make_shared<Picture>(std::move(given));
  for (int64_t row = 0; row < picture->lines * picture->columns; ++row) {
    // Two rows of pictures that are held at once do not share an id.
    text::TokenId id = 0;
    for (uint64_t attempt = 0;; ++attempt) {
      id = id_of(picture->hash, row, attempt);
      const auto other = rows_.find(id);
      if (other == rows_.end() || other->second.picture.expired()) break;
    }
    rows_[id] = {picture, row};
    picture->ids.push_back(id);
  }
  pictures_.push_back(picture);
  return picture;
}

std::optional<PictureBook::Row> PictureBook::find(text::TokenId id) const {
  const std::lock_guard lock(mutex_);
  const auto at = rows_.find(id);
  if (at == rows_.end()) return std::nullopt;
  PictureRef picture = at->second.picture.lock();
  if (!picture) return std::nullopt;
  return Row{std::move(picture), at->second.row};
}

}  // namespace lumen::model::infer
