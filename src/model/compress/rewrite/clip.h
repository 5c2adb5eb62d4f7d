// AWQ's clip search, for any format: how far the largest numbers of each group of each row may be clamped before they
// are rounded, so that the group's part of the product changes least. Source: arXiv 2306.00978. Proved by
// tests/model/compress/rewrite/rules_test.cpp.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

namespace lumen::model {

// What rounding makes of a matrix [rows, columns].
using RoundMatrix = std::function<std::vector<float>(std::span<const float> values, int64_t rows, int64_t columns)>;

inline constexpr int kClipSteps = 10;  // down to max |w| (1 - 9 / 20)

struct ClipLimits {
  int64_t rows = 0, columns = 0, group = 0;
  std::vector<float> limits;             // [rows, columns / group]
  double before = 0, after = 0;          // sums of squared errors of all parts, without and with limits
  void clamp(std::span<float> w) const;  // numbers of [rows, columns]
};

// w [rows, columns], x [samples, columns]: what w is multiplied with. `group` divides columns: those that share a scale
// in the format (columns: one scale a row).
ClipLimits find_clip(std::span<const float> w, int64_t rows, int64_t columns, int64_t group, std::span<const float> x,
                     const RoundMatrix& round);
// The same by the gram of what w is multiplied with, [columns, columns], of which groups look at their own block.
ClipLimits find_clip_by_gram(std::span<const float> w, int64_t rows, int64_t columns, int64_t group,
                             std::span<const float> gram, const RoundMatrix& round);

}  // namespace lumen::model
