// AWQ's clip search for any format: finds for each group of each row the clamping limit before rounding that changes
// the group's part of the product least. Source: arXiv 2306.00978. Proved by
// tests/model/compress/equivalent_transform/rules_test.cpp.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

namespace lumen::model::compress {

// Rounds a matrix [rows, columns], and returns the decoded values.
using RoundMatrix = std::function<std::vector<float>(std::span<const float> values, int64_t rows, int64_t columns)>;

inline constexpr int kClipSteps = 10;  // down to max |w| (1 - 9 / 20)

struct ClipLimits {
  int64_t rows = 0, columns = 0, group = 0;
  std::vector<float> limits;             // [rows, columns / group]
  double before = 0, after = 0;          // sums of squared output errors, without and with limits
  void clamp(std::span<float> w) const;  // numbers of [rows, columns]
};

// w [rows, columns], x [samples, columns]: inputs of w. `group` divides columns: numbers that share a scale in the
// format (columns: one scale per row).
ClipLimits find_clip(std::span<const float> w, int64_t rows, int64_t columns, int64_t group, std::span<const float> x,
                     const RoundMatrix& round);
// The same with the gram of w's inputs, [columns, columns]; each group uses its diagonal block.
ClipLimits find_clip_by_gram(std::span<const float> w, int64_t rows, int64_t columns, int64_t group,
                             std::span<const float> gram, const RoundMatrix& round);

}  // namespace lumen::model::compress
