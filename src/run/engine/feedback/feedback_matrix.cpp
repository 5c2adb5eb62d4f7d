// Cuts U into tiles and copies them to a device.
#include <algorithm>
#include <cmath>
#include <numeric>
#include <optional>

#include "base/check.h"
#include "base/error.h"
#include "base/round_up.h"
#include "base/threads/team.h"
#include "run/engine/feedback/feedback.h"

namespace lumen::run {

namespace {

constexpr int64_t kStretch = 1024;  // columns, about

DeviceTensorRef upload(Engine& engine, const std::vector<float>& x, int64_t rows, int64_t columns) {
  const graph::Type type{{graph::Dim(rows), graph::Dim(columns)}, {}};
  auto tensor = std::make_shared<DeviceTensor>(engine.device(), type);
  tensor->upload(x.data(), tensor->bytes());
  return tensor;
}

}  // namespace

FeedbackTiling feedback_tiling(const Format& f, int64_t columns, const FeedbackOptions& options) {
  FeedbackTiling t;
  t.columns = columns;
  t.panel = options.in_order ? std::min<int64_t>(columns, 128) : synth::feedback_panel(f, columns);
  const int64_t panels = ceil_div(columns, t.panel);
  const int64_t stretches = std::max<int64_t>(1, (panels * t.panel + kStretch / 2) / kStretch);
  t.stretch = ceil_div(panels, stretches) * t.panel;
  t.padded = ceil_div(columns, t.stretch) * t.stretch;
  return t;
}

int64_t FeedbackMatrix::bytes(const FeedbackTiling& t) {
  const int64_t stretches = t.padded / t.stretch;
  return 4 * (stretches * (stretches - 1) / 2 * t.stretch * t.stretch + t.padded * (t.stretch + t.panel));
}

FeedbackMatrix::FeedbackMatrix(Engine& engine, std::span<const float> u, const FeedbackTiling& tiling)
    : tiling_(tiling), stretches_(tiling.padded / tiling.stretch), between_(stretches_ * stretches_) {
  const int64_t n = tiling.columns, panel = tiling.panel, stretch = tiling.stretch;
  LUMEN_CHECK(std::ssize(u) == n * n, "{} numbers for {} columns", u.size(), n);
  std::vector<std::optional<int64_t>> broken(n);  // by row
  parallel_for(0, n, {.grain = 64}, [&](int64_t i) {
    for (int64_t j = n; --j > i;)
      if (!std::isfinite(u[i * n + j])) broken[i] = j;
  });
  for (int64_t i = 0; i < n; ++i)
    if (const auto j = broken[i])
      throw Error(Exit::numeric, fmt::format("feedback from column {} to column {} is {}", i, *j, u[i * n + *j]));
  engine.require_memory("error feedback", {{"feedback between columns", bytes(tiling)}});
  std::vector<float> tile;
  // A tile from (`row`, `column`); rows from `end` on are zeros.
  const auto cut = [&](int64_t row, int64_t column, int64_t rows, int64_t columns, int64_t end) {
    tile.resize(rows * columns);
    parallel_for(row, row + rows, {.is_worth = rows * columns > 65536}, [&](int64_t i) {
      float* const line = tile.data() + (i - row) * columns;
      std::fill_n(line, columns, 0.0F);
      if (i >= std::min(end, n)) return;
      for (int64_t j = std::max(column, i + 1); j < std::min(column + columns, n); ++j) line[j - column] = u[i * n + j];
    });
    return upload(engine, tile, rows, columns);
  };
  for (int64_t s = 0; s < stretches_; ++s)
    for (int64_t t = s + 1; t < stretches_; ++t)
      between_[s * stretches_ + t] = cut(s * stretch, t * stretch, stretch, stretch, n);
  for (int64_t p = 0; p * panel < n; ++p) {
    const int64_t first = p * panel;
    before_.push_back(first % stretch == 0 ? nullptr : cut(first / stretch * stretch, first, stretch, panel, first));
    within_.push_back(cut(first, first, panel, panel, n));
  }
}

}  // namespace lumen::run
