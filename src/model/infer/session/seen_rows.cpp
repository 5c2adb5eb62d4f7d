#include "model/infer/session/seen_rows.h"

#include <algorithm>

#include "base/check.h"

namespace lumen::model::infer {

bool positions_by_grid(const arch::Model& model) {
  // A family's config key: how many pairs of a head turn by each axis.
  constexpr std::string_view kAxes = "axes.";
  return std::ranges::any_of(model.config,
                             [&](const auto& entry) { return entry.first.starts_with(kAxes) && entry.second > 0; });
}

int64_t picture_width(const arch::Model& model) {
  const auto deep = model.config.find("deep");
  return model.integer("hidden") * (deep == model.config.end() ? 1 : 1 + int64_t(deep->second));
}

SeenRows::SeenRows(const LoadedModel& loaded, int64_t tokens)
    : book_(loaded.pictures()), tokens_(tokens), seen_(tokens, 0), at_(3 * tokens, 0) {}

text::TokenId SeenRows::put(int64_t i, text::TokenId id, const std::array<int32_t, 3>& position) {
  for (int64_t axis = 0; axis < 3; ++axis) at_[axis * tokens_ + i] = position[axis];
  if (!is_picture(id)) return id;
  const std::optional<PictureBook::Row> row = book_.find(id);
  LUMEN_CHECK(row, "token {} is of no picture", id);
  const int64_t width = row->picture->width();
  rows_.resize(tokens_ * width);
  const auto from = row->picture->rows.begin() + row->number * width;
  std::copy(from, from + width, rows_.begin() + i * width);
  seen_[i] = 1;
  return 0;
}

void SeenRows::hand_over(std::map<std::string, Handed>& in) {
  const auto put = [&](const char* name, const auto& values) {
    if (const auto input = in.find(name); input != in.end()) input->second.put(values);
  };
  put(kAt, at_);
  put(kSeen, seen_);
  if (!rows_.empty()) put(kPictures, rows_);
}

}  // namespace lumen::model::infer
