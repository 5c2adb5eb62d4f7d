#include "model/compress/strategy/strategy.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "model/compress/strategy/each.h"

namespace lumen::model {
namespace {

std::span<const float> matrix_of(const std::vector<float> TapSums::* kind, const TapSums* reads, int64_t m,
                                 int64_t columns) {
  if (!reads || (reads->*kind).empty()) return {};
  const std::vector<float>& sums = reads->*kind;
  if (reads->tap.matrices == 0) return sums;
  if (reads->counts[m] == 0) return {};
  return std::span<const float>(sums).subspan(m * columns * columns, columns * columns);
}

// Sum over rows of e G e^T.
double energy(std::span<const float> e, std::span<const float> gram, int64_t rows, int64_t columns) {
  std::vector<double> of_row(rows);
#pragma omp parallel for schedule(static)
  for (int64_t r = 0; r < rows; ++r) {
    const float* x = e.data() + r * columns;
    double sum = 0;
    for (int64_t k = 0; k < columns; ++k) {
      if (x[k] == 0) continue;
      const float* g = gram.data() + k * columns;
      double line = 0;
      for (int64_t l = 0; l < columns; ++l) line += double{g[l]} * x[l];
      sum += x[k] * line;
    }
    of_row[r] = sum;
  }
  double all = 0;
  for (const double s : of_row) all += s;
  return all;
}

}  // namespace

std::span<const float> RoundingTask::gram(int64_t m) const {
  return matrix_of(&TapSums::gram, reads, m, columns);
}
std::span<const float> RoundingTask::cross(int64_t m) const {
  return matrix_of(&TapSums::cross, reads, m, columns);
}

int64_t RoundingTask::rows_read(int64_t m) const {
  if (!reads) return 0;
  return reads->tap.matrices > 0 ? std::llround(reads->counts[m]) : reads->rows;
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

const std::vector<const Strategy*>& strategies() {
  static const std::vector<const Strategy*> all = {&nearest_strategy(),  &importance_strategy(),
                                                   &feedback_strategy(), &answering_strategy(),
                                                   &clipped_strategy(),  &half_quadratic_strategy()};
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

std::optional<double> output_error(const RoundingTask& task, std::span<const float> rounded) {
  double lost = 0, all = 0;
  const int64_t size = task.rows * task.columns;
  std::vector<float> e(size);
  for (int64_t m = 0; m < task.matrices; ++m) {
    const std::span<const float> gram = task.gram(m), w = task.matrix(m);
    if (gram.empty()) {
      if (task.matrices == 1) return std::nullopt;
      continue;
    }
    for (int64_t i = 0; i < size; ++i) e[i] = w[i] - rounded[m * size + i];
    lost += energy(e, gram, task.rows, task.columns);
    all += energy(w, gram, task.rows, task.columns);
  }
  if (all <= 0) return std::nullopt;
  return std::sqrt(std::max(lost, 0.0) / all);
}

}  // namespace lumen::model
