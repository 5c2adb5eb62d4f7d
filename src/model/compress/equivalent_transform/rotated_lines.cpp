#include "model/compress/equivalent_transform/rotated_lines.h"

#include <algorithm>
#include <array>
#include <map>

#include "base/threads/team.h"

namespace lumen::model::compress {

namespace {

constexpr int64_t kAtOnce = 64;  // lines per product: one read of the rotation serves all of them

}  // namespace

RotatedLines::RotatedLines(const graph::RotatedParameter& change, const graph::Shape& shape, int64_t width)
    : width_(width) {
  const int64_t columns = shape.back().number(), rows = shape.size() > 1 ? shape[shape.size() - 2].number() : 1;
  const bool by_rows = change.along == graph::Along::rows, by_columns = change.along == graph::Along::columns;
  const int64_t axis = by_rows ? rows : by_columns ? columns : std::ssize(change.places);
  // By matrix, block and the block's occurrence: positions along the axis.
  std::map<std::array<int64_t, 3>, std::vector<int64_t>> groups;
  std::map<std::pair<int64_t, int32_t>, int64_t> times;
  for (int64_t i = 0; i < std::ssize(change.places); ++i) {
    const int32_t place = change.places[i];
    if (place < 0) continue;
    auto& at = groups[{i / axis, place / width, times[{i / axis, place}]++}];
    at.resize(width);
    at[place % width] = i % axis;
  }
  for (auto& [where, places] : groups) {
    Panel& p = panels_.emplace_back();
    p.block = where[1];
    p.lines = by_rows ? columns : by_columns ? rows : 1;
    p.between_lines = by_rows ? 1 : by_columns ? columns : 0;
    for (const int64_t place : places)
      p.places.push_back(by_rows      ? where[0] * rows * columns + place * columns
                         : by_columns ? where[0] * rows * columns + place
                                      : place);
  }
}

void RotatedLines::apply(std::span<float> values, std::span<const Rotation> rotations) const {
  std::vector<std::pair<size_t, int64_t>> parts;
  for (size_t p = 0; p < panels_.size(); ++p)
    for (int64_t first = 0; first < panels_[p].lines; first += kAtOnce) parts.emplace_back(p, first);
  parallel_for(0, std::ssize(parts), {.grain = 1, .is_worth = std::ssize(values) > 65536}, [&](int64_t k) {
    const Panel& p = panels_[parts[k].first];
    const int64_t first = parts[k].second, count = std::min(kAtOnce, p.lines - first);
    std::vector<double> lines(count * width_);
    take<double>(p, first, count, values, lines);
    rotations[rotations.size() == 1 ? 0 : p.block].apply_all(lines);
    put<double>(p, first, count, lines, values);
  });
}

}  // namespace lumen::model::compress
