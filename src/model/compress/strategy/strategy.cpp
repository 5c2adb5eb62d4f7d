#include "model/compress/strategy/strategy.h"

#include <algorithm>
#include <cmath>

#include "base/check.h"
#include "base/error.h"
#include "model/calibrate/sound.h"
#include "model/compress/strategy/each.h"

namespace lumen::model::compress {
std::span<const float> RoundingTask::gram(int64_t m) const {
  return reads ? reads->gram_of(m) : std::span<const float>{};
}
std::span<const float> RoundingTask::cross(int64_t m) const {
  return reads ? reads->cross_of(m) : std::span<const float>{};
}

int64_t RoundingTask::rows_read(int64_t m) const {
  return reads ? reads->rows_of(m) : 0;
}

std::vector<float> RoundingTask::squares(int64_t m) const {
  if (!reads || (reads->squares.empty() && reads->gram.empty()) || rows_read(m) == 0) return {};
  const bool stacked = reads->tap.matrices > 0;
  const double read = rows_read(m);
  std::vector<float> out(columns);
  const int64_t first = stacked ? m : 0;
  for (int64_t c = 0; c < columns; ++c) {
    const double sum =
        reads->squares.empty() ? reads->gram[(first * columns + c) * columns + c] : reads->squares[first * columns + c];
    out[c] = sum / read;
  }
  return out;
}

std::vector<float> RoundingTask::importance(int64_t* unreached) const {
  if (matrices == 1) {
    std::vector<float> of_columns = squares(0);
    calibrate::raise_zeros(of_columns);
    return of_columns;
  }
  std::vector<float> of_elements(values.size(), 1);
  for (int64_t m = 0; m < matrices; ++m) {
    std::vector<float> of_columns = squares(m);
    calibrate::raise_zeros(of_columns);
    if (unreached) *unreached += of_columns.empty();
    for (int64_t r = 0; r < rows && !of_columns.empty(); ++r)
      std::ranges::copy(of_columns, of_elements.begin() + (m * rows + r) * columns);
  }
  return of_elements;
}

BlockRounding Rounder::round_block(BlockObjective&, std::span<const RoundingTask>, const LearnProgress&) {
  LUMEN_CHECK(false, "a strategy that quantizes weights one by one got a layer");
  return {};
}

const std::vector<const Strategy*>& strategies() {
  static const std::vector<const Strategy*> all = {
      &nearest_strategy(),   &importance_strategy(),     &feedback_strategy(),  &answering_strategy(),
      &clipped_strategy(),   &half_quadratic_strategy(), &autoround_strategy(), &adaround_strategy(),
      &omniquant_strategy(), &block_ap_strategy()};
  return all;
}

const Strategy& find_strategy(const std::string& name) {
  std::string known;
  for (const Strategy* s : strategies()) {
    if (s->name() == name) return *s;
    known += fmt::format("{}{}", known.empty() ? "" : ", ", s->name());
  }
  throw usage_error("no strategy is called '{}'; there are {}", name, known);
}

std::optional<double> TaskErrors::relative(const RoundingTask& task, std::span<const float> rounded) {
  double lost = 0, all = 0;
  const int64_t few = std::min(task.rows, kRows), size = task.rows * task.columns;
  std::vector<float> w(few * task.columns), e(few * task.columns);
  for (int64_t m = 0; m < task.matrices; ++m) {
    const std::span<const float> gram = task.gram(m);
    if (gram.empty()) {
      if (task.matrices == 1) return std::nullopt;
      continue;
    }
    for (int64_t r = 0; r < few; ++r) {
      const int64_t from = m * size + r * task.rows / few * task.columns;
      for (int64_t c = 0; c < task.columns; ++c) {
        w[r * task.columns + c] = task.values[from + c];
        e[r * task.columns + c] = task.values[from + c] - rounded[from + c];
      }
    }
    if (gram_of_ != gram.data()) {
      gram_ = nullptr;
      gram_ = errors_.keep(gram, task.columns);
      gram_of_ = gram.data();
    }
    for (const double row : errors_.of(e, few, task.columns, gram_)) lost += row;
    for (const double row : errors_.of(w, few, task.columns, gram_)) all += row;
  }
  if (all <= 0) return std::nullopt;
  return std::sqrt(std::max(lost, 0.0) / all);
}

void TaskErrors::forget() {
  gram_ = nullptr;
  gram_of_ = nullptr;
}

}  // namespace lumen::model::compress
